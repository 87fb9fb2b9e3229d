"""Compares two evaluations on the same test images, image by image.

Models tend to err on the same images, so most of the sampling error that a finite test set adds to two accuracies
cancels in their difference. The standard error over test images is that of the mean of each image's difference (1, 0 or
-1 for one run each), as in a paired t test; for two runs it is what McNemar's discordant images give without his null
hypothesis. Averages over seeds, draws and models are taken image by image first, because all have the same test images.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bench.core.clusters import cluster_error, group_sums
from bench.stats.intervals import POINT_LEVEL, Samples, common_labels, difference, z_quantile
from bench.store.prediction_bits import Correct

POWER, USUALLY_DISAGREE = 0.8, 0.1
"""For plans: the probability with which a difference should be found, and the fraction of test images on which exactly
one of two models is usually right."""
MIN_DIFFERING = 10
"""Fewest test images, or groups of them, whose answers must differ between two models. With fewer, the mean difference
is far from normal, and the wider error of two independent test sets is kept."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Paired:
    """For each test image, how much more often the first model was right than the second, averaged over runs.

    Attributes:
        difference_M: fraction of the runs in which the first model was right, minus that of the second: -1 to 1, in the
            order of the test set.
        content_hash: hash of the test images.
        groups_M: group labels, equal for test images that belong together (such as photos of one patient); None if
            every image stands alone.
        shared: the part of `error`² that comes from answers varying at random with run and image. The spread of the
            runs' means contains this part as well. 0 for one run.
    """

    difference_M: np.ndarray
    content_hash: str
    shared: float = 0.0
    groups_M: np.ndarray | None = None

    @property
    def error(self) -> float:
        """Standard error of the mean difference, over test images or groups of them."""
        return math.sqrt(image_variance(self.difference_M, self.groups_M))


def pair(a: Samples, b: Samples) -> Paired | None:
    """Return the differences a - b image by image, averaged over the seeds and draws that both have. None if the
    records of either do not say which images were right, if the test images are not the same, or if too few answers
    differ (`MIN_DIFFERING`)."""
    both = difference(a, b)
    if both is None or a.correct_SD is None or b.correct_SD is None:
        return None
    ours, theirs = _chosen(a, both), _chosen(b, both)
    if len({(answers.content_hash, answers.num_images) for answers in (*ours, *theirs)}) != 1:
        return None
    runs_RM = _right(ours) - _right(theirs)
    difference_M = runs_RM.mean(axis=0)
    groups_M = ours[0].groups_M
    if np.count_nonzero(_by_group(difference_M, groups_M)) < MIN_DIFFERING:
        return None
    shared, content = _shared(runs_RM, groups_M), ours[0].content_hash
    return Paired(difference_M=difference_M, content_hash=content, shared=shared, groups_M=groups_M)


def resampled_error(a: Samples, b: Samples) -> float | None:
    """Return the standard error over test images of a - b, for a metric that is not a mean over images: the spread of
    a - b over resamples of the test set. None if the records of a and b do not hold their values in the same resamples,
    if a - b is the same in all of them, or if there are several seeds or draws."""
    if a.resampled_SD is None or b.resampled_SD is None or a.resampled_SD.size != 1 or b.resampled_SD.size != 1:
        return None
    one, other = a.resampled_SD.flat[0], b.resampled_SD.flat[0]
    if one.content_hash != other.content_hash or len(one.packed) != len(other.packed):
        return None
    error = float((one.values_B.astype(float) - other.values_B).std(ddof=1))
    return error if error > 0 else None  # equal answers in these resamples do not prove an error of 0


def mean_of(pairs: Sequence[Paired | None]) -> Paired | None:
    """Return the unweighted mean of several pairs' differences, image by image; None unless all are known (not None)
    and on the same test images."""
    known = [one for one in pairs if one is not None]
    if len(known) < len(pairs) or len({one.content_hash for one in known}) != 1:
        return None
    mean_M, first = np.mean([one.difference_M for one in known], axis=0), known[0]
    return Paired(difference_M=mean_M, content_hash=first.content_hash, groups_M=first.groups_M)


def contrast_error(parts: Sequence[tuple[float, Samples]]) -> float | None:
    """Return the standard error over test images of a weighted sum of accuracies, such as a difference of averages over
    tasks and budgets. It is computed image by image; different test sets are independent.

    The part that comes from answers varying at random with run and image is left out, because the spread of the runs
    contains it (`Paired.shared`).

    Args:
        parts: (weight, accuracies) of each term of the sum. Only the seeds and draws are used that all terms have; a
            term without seeds (draws) is used for all of them.

    Returns:
        The standard error; None if it is unknown: some term does not hold which images were right, the weights on some
        test set do not add up to 0 (there is nothing to pair), or the answers to too few images, or groups of them,
        differ.
    """
    seeds = common_labels([samples.seeds for _, samples in parts])
    draws = common_labels([samples.draws for _, samples in parts])
    if not parts or seeds is None or draws is None:
        return None
    sums: dict[str, tuple[float, np.ndarray]] = {}
    groups: dict[str, np.ndarray | None] = {}
    for weight, samples in parts:
        if samples.correct_SD is None:
            return None
        rows = [samples.seeds.index(seed) for seed in seeds] if samples.seeds else [0] * max(1, len(seeds))
        columns = [samples.draws.index(draw) for draw in draws] if samples.draws else [0] * max(1, len(draws))
        answers = list(samples.correct_SD[np.ix_(rows, columns)].flat)
        if len({(one.content_hash, one.num_images) for one in answers}) != 1:
            return None
        groups[answers[0].content_hash] = answers[0].groups_M
        total, sum_RM = sums.get(answers[0].content_hash, (0.0, np.zeros(())))
        sums[answers[0].content_hash] = total + weight, sum_RM + weight * _right(answers)
    variance = 0.0
    for content, (total, sum_RM) in sums.items():
        mean_M = sum_RM.mean(axis=0)
        differing = np.abs(mean_M) > 1e-12
        if abs(total) > 1e-9 or np.count_nonzero(_by_group(differing, groups[content])) < MIN_DIFFERING:
            return None
        variance += max(0.0, image_variance(mean_M, groups[content]) - _shared(sum_RM, groups[content]))
    return math.sqrt(variance)


def image_variance(x_M: np.ndarray, groups_M: np.ndarray | None) -> float:
    """Return the variance of the mean of x over test images. Images of one group are not independent of each other;
    `groups_M`: group label of each image; None: all images are independent."""
    if groups_M is not None:
        return cluster_error(x_M, groups_M)[0] ** 2
    return float(x_M.var(ddof=1)) / len(x_M)


def _by_group(x_M: np.ndarray, groups_M: np.ndarray | None) -> np.ndarray:
    return x_M if groups_M is None else group_sums(np.abs(x_M), groups_M)


def _chosen(samples: Samples, both: Samples) -> list[Correct]:
    """Return the answers to single test images in `samples`, one entry per seed and draw of `both`. `both` is a
    difference whose one side is `samples`."""
    assert samples.correct_SD is not None
    rows = [samples.seeds.index(seed) for seed in both.seeds] if samples.seeds else [0]
    columns = [samples.draws.index(draw) for draw in both.draws] if samples.draws else [0]
    return list(samples.correct_SD[np.ix_(rows, columns)].flat)


def _right(answers: Sequence[Correct]) -> np.ndarray:
    """Return which answers were right (1) or wrong (0), for every run: float64 (runs, images)."""
    return np.array([answer.right_M for answer in answers], dtype=float)


def _shared(x_RM: np.ndarray, groups_M: np.ndarray | None = None) -> float:
    """Return the part of the variance of the mean of x (runs, images) that neither runs nor images (or groups of
    images) explain: the residual of a two-way layout without repeats. 0 for one run."""
    if groups_M is not None:  # sum the deviations of each group, so that large groups weigh more, as in the mean
        centred_RM = x_RM - x_RM.mean()
        x_RM = np.array([group_sums(x_M, groups_M) for x_M in centred_RM]) * len(np.unique(groups_M)) / x_RM.shape[1]
    runs, images = x_RM.shape
    if runs < 2 or images < 2:
        return 0.0
    rest_RM = x_RM - x_RM.mean(axis=0) - x_RM.mean(axis=1, keepdims=True) + x_RM.mean()
    return float((rest_RM**2).sum()) / ((runs - 1) * (images - 1)) / x_RM.size


def detectable(num_test: int) -> tuple[float, float] | None:
    """Return the smallest difference of two accuracies that a test set of `num_test` images can show, and the fraction
    of images on which exactly one of the models is assumed to be right (`MIN_DIFFERING` images at least).

    The interval of a difference of this size excludes 0 with probability `POWER` (McNemar's test, normal
    approximation). None for a test set of fewer than `MIN_DIFFERING` images.
    """
    from scipy import special

    disagree = max(USUALLY_DISAGREE, MIN_DIFFERING / num_test)
    if disagree > 1:
        return None
    return float((z_quantile(POINT_LEVEL) + special.ndtri(POWER)) * (disagree / num_test) ** 0.5), disagree
