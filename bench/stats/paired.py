"""Two evaluations on the same test images, compared image by image.

Models tend to err on the same images, so most of what a finite test set adds to two accuracies cancels in their
difference. The standard error over test images is that of the mean of the images' own differences (1, 0 or -1 for one
run each), as in a paired t test; for two runs it is what McNemar's discordant images give without his null hypothesis.
Averages over seeds, draws and models are taken image by image first: the test images are the same for all of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bench.stats.intervals import Samples, common_labels, difference
from bench.store.prediction_bits import Correct

MIN_DIFFERING = 10
"""Images whose answers differ; with fewer their mean is far from normal, and the wider error of two sets is kept."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Paired:
    """Per test image, the first's answers minus the second's, right counted as 1: means over what was run.

    Attributes:
        difference_M: in the order of the test set.
        content_hash: of the test images.
        shared: the part of `error`² that comes from single answers, which differ by run and image: it is in the spread
            of the runs' means as well. 0 for one run.
    """

    difference_M: np.ndarray
    content_hash: str
    shared: float = 0.0

    @property
    def error(self) -> float:
        """Standard error of the mean difference over test images."""
        return float(self.difference_M.std(ddof=1)) / math.sqrt(len(self.difference_M))


def pair(a: Samples, b: Samples) -> Paired | None:
    """a - b over the seeds and draws that both have. None where the records of either do not hold which images were
    right, where the images are not the same, or where too few differ (`MIN_DIFFERING`)."""
    both = difference(a, b)
    if both is None or a.correct_SD is None or b.correct_SD is None:
        return None
    ours, theirs = _chosen(a, both), _chosen(b, both)
    if len({(found.content_hash, found.num_images) for found in (*ours, *theirs)}) != 1:
        return None
    runs_RM = _right(ours) - _right(theirs)
    difference_M = runs_RM.mean(axis=0)
    if np.count_nonzero(difference_M) < MIN_DIFFERING:
        return None
    return Paired(difference_M=difference_M, content_hash=ours[0].content_hash, shared=_shared(runs_RM))


def mean_of(pairs: Sequence[Paired | None]) -> Paired | None:
    """The plain mean of differences, image by image; None unless all are known and on the same images."""
    known = [found for found in pairs if found is not None]
    if len(known) < len(pairs) or len({found.content_hash for found in known}) != 1:
        return None
    return Paired(
        difference_M=np.mean([found.difference_M for found in known], axis=0), content_hash=known[0].content_hash
    )


def contrast_error(parts: Sequence[tuple[float, Samples]]) -> float | None:
    """Standard error over test images of a weighted sum of accuracies, such as a difference of averages over tasks and
    budgets: image by image, with different test sets independent.

    What runs and images share is left out: it is in the spread of the runs (`Paired.shared`).

    Args:
        parts: weights and scores, on common seeds and draws where they have any.

    Returns:
        None where that is not known: some part does not hold which images were right, the weights on some test images
        do not add up to 0 (there is nothing to pair), or the answers to too few images differ.
    """
    seeds = common_labels([samples.seeds for _, samples in parts])
    draws = common_labels([samples.draws for _, samples in parts])
    if not parts or seeds is None or draws is None:
        return None
    sums: dict[str, tuple[float, np.ndarray]] = {}
    for weight, samples in parts:
        if samples.correct_SD is None:
            return None
        rows = [samples.seeds.index(seed) for seed in seeds] if samples.seeds else [0] * max(1, len(seeds))
        columns = [samples.draws.index(draw) for draw in draws] if samples.draws else [0] * max(1, len(draws))
        answers = list(samples.correct_SD[np.ix_(rows, columns)].flat)
        if len({(one.content_hash, one.num_images) for one in answers}) != 1:
            return None
        total, sum_RM = sums.get(answers[0].content_hash, (0.0, np.zeros(())))
        sums[answers[0].content_hash] = total + weight, sum_RM + weight * _right(answers)
    variance = 0.0
    for total, sum_RM in sums.values():
        mean_M = sum_RM.mean(axis=0)
        if abs(total) > 1e-9 or np.count_nonzero(np.abs(mean_M) > 1e-12) < MIN_DIFFERING:
            return None
        variance += max(0.0, float(mean_M.var(ddof=1)) / len(mean_M) - _shared(sum_RM))
    return math.sqrt(variance)


def _chosen(samples: Samples, both: Samples) -> list[Correct]:
    """Answers behind the seeds and draws of `both`, the difference that `samples` is one side of."""
    assert samples.correct_SD is not None
    rows = [samples.seeds.index(seed) for seed in both.seeds] if samples.seeds else [0]
    columns = [samples.draws.index(draw) for draw in both.draws] if samples.draws else [0]
    return list(samples.correct_SD[np.ix_(rows, columns)].flat)


def _right(answers: Sequence[Correct]) -> np.ndarray:
    """Which answers were right, float64 (R, M): one row per run."""
    return np.array([found.right_M for found in answers], dtype=float)


def _shared(x_RM: np.ndarray) -> float:
    """Variance of the mean of all values that neither runs nor images explain (two-way layout without repeats)."""
    runs, images = x_RM.shape
    if runs < 2 or images < 2:
        return 0.0
    rest_RM = x_RM - x_RM.mean(axis=0) - x_RM.mean(axis=1, keepdims=True) + x_RM.mean()
    return float((rest_RM**2).sum()) / ((runs - 1) * (images - 1)) / x_RM.size
