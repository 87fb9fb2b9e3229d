"""Metrics for imbalanced classes, each with its standard error over test images, or over groups of them (such as the
images of one patient).

Values are scikit-learn's. Errors come from resamples of the test images, or of their groups, with replacement. These
are the same for every score on the same images, so that two scores can be compared in pairs. A class whose images are
all right, or all wrong, adds the error of half a mistake, which resamples cannot show.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from bench.core.errors import unknown
from bench.core.metrics import BALANCED, BESIDE, MACRO_F1
from bench.core.seeds import generator
from bench.store import resampled
from bench.study.record import Score

RESAMPLES = 500
AT_ONCE = 1 << 22  # weights (resamples x images) held in memory at a time
LEVEL = 0.9  # confidence level of the intervals of recalls


def check(metrics: Sequence[str]) -> None:
    """Check that all metrics are known.

    Raises:
        UserError: a metric is neither "accuracy" nor in `bench.core.metrics.BESIDE`.
    """
    for name in metrics:
        if name not in ("accuracy", *BESIDE):
            raise unknown("metric", name, ("accuracy", *BESIDE))


def scores(
    metrics: Sequence[str],
    predicted_M: np.ndarray,
    labels_M: np.ndarray,
    *,
    names: Sequence[str],
    content_hash: str | None,
    groups_M: np.ndarray | None = None,
    detail: Mapping[str, Any],
    **head: Any,
) -> list[Score]:
    """Return one score for each metric other than accuracy.

    Args:
        metrics: names of metrics, of `bench.core.metrics`.
        names: names of the classes, in the order of labels.
        content_hash: hash of the test images; None if the record should not hold the values on the resamples.
        groups_M: numbers, equal for test images that belong together (such as one patient's); None where no images do.
        detail: detail of each score.
        head: other fields of the scores.
    """
    check(metrics)
    asked = [name for name in BESIDE if name in metrics]
    if not asked or not len(labels_M):
        return []
    number = len(names)
    drawn_B = {name: np.zeros(RESAMPLES) for name in asked}
    for rows, weights_BM in weights(len(labels_M), groups_M):
        labelled_BK, predicted_BK = (_by_class(weights_BM, of_M, number) for of_M in (labels_M, predicted_M))
        right_BK = _by_class(weights_BM * (predicted_M == labels_M), labels_M, number)
        for name in asked:
            drawn_B[name][rows] = VALUES[name](labelled_BK, predicted_BK, right_BK)
    made = []
    for name in asked:
        value = value_of(name, predicted_M, labels_M)
        stderr = float(np.hypot(drawn_B[name].std(ddof=1), _unseen(predicted_M, labels_M, groups_M)))
        own = dict(detail)
        if content_hash is not None:
            own |= dict([resampled.to_detail(drawn_B[name], content_hash=content_hash)])
        if name == BALANCED:
            own["recalls"] = recalls(predicted_M, labels_M, names, groups_M)
        if groups_M is not None:
            own["test_groups"] = len(np.unique(groups_M))
        made.append(
            Score(metric=name, value=value, stderr=stderr, chance=_chance(name, labels_M, number), detail=own, **head)
        )
    return made


def value_of(metric: str, predicted_M: np.ndarray, labels_M: np.ndarray) -> float:
    """Return the value of a metric, "accuracy", "balanced-accuracy" or "macro-f1", for predicted and correct
    classes."""
    from sklearn.metrics import f1_score, recall_score

    if metric == MACRO_F1:
        return float(f1_score(labels_M, predicted_M, average="macro"))
    if metric == BALANCED:
        return float(recall_score(labels_M, predicted_M, labels=np.unique(labels_M), average="macro"))
    return float((predicted_M == labels_M).mean())


def weights(num_test: int, groups_M: np.ndarray | None) -> Iterator[tuple[slice, np.ndarray]]:
    """Draw RESAMPLES resamples of the test images, with replacement, and yield some of them at a time: (a slice of
    their numbers, how often each test image is in each: (B, M)).

    Images of a group are always in a resample together. Resamples depend only on the numbers of images and groups; that
    suffices, because scores on different images are never paired.

    Args:
        groups_M: numbers, equal for test images that belong together; None where no images do.
    """
    of_M = None if groups_M is None else np.unique(groups_M, return_inverse=True)[1]
    units = num_test if of_M is None else int(of_M.max()) + 1
    rng, at_once = generator(0, f"metrics/{units}"), max(1, AT_ONCE // num_test)
    for start in range(0, RESAMPLES, at_once):
        rows = slice(start, min(RESAMPLES, start + at_once))
        drawn_BU = rng.multinomial(units, np.full(units, 1 / units), size=rows.stop - rows.start)
        yield rows, drawn_BU if of_M is None else drawn_BU[:, of_M]


def _by_class(weights_BM: np.ndarray, classes_M: np.ndarray, number: int) -> np.ndarray:
    """Return for each resample the sum of the weights of the images of each class: (B, K).

    Args:
        weights_BM: how often each image is in each resample, or 0 where it is not to be counted.
        classes_M: class of each image.
        number: number of classes, K.
    """
    return np.stack([np.bincount(classes_M, weights=row_M, minlength=number) for row_M in weights_BM])


def _balanced(labelled_BK: np.ndarray, predicted_BK: np.ndarray, right_BK: np.ndarray) -> np.ndarray:
    return _mean(right_BK, labelled_BK)


def _macro_f1(labelled_BK: np.ndarray, predicted_BK: np.ndarray, right_BK: np.ndarray) -> np.ndarray:
    return _mean(2 * right_BK, labelled_BK + predicted_BK)


def _mean(part_BK: np.ndarray, whole_BK: np.ndarray) -> np.ndarray:
    """Return for each resample the mean of part / whole over those classes whose whole is not 0: (B,)."""
    return (part_BK / np.maximum(whole_BK, 1)).sum(1) / np.maximum((whole_BK > 0).sum(1), 1)


VALUES: dict[str, Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]] = {
    BALANCED: _balanced,
    MACRO_F1: _macro_f1,
}


def _unseen(predicted_M: np.ndarray, labels_M: np.ndarray, groups_M: np.ndarray | None) -> float:
    """Return the part of the standard error of a mean over classes that resamples cannot show. A class whose images are
    all right, or all wrong, does not vary among resamples; it is given the error of half a mistake.

    Args:
        groups_M: numbers, equal for test images that belong together; None where no images do.
    """
    classes, variance = np.unique(labels_M), 0.0
    for label in classes:
        of_class_M = labels_M == label
        if len(np.unique(predicted_M[of_class_M] == label)) == 1:
            n = int(of_class_M.sum()) if groups_M is None else len(np.unique(groups_M[of_class_M]))
            variance += 0.5 / n * (1 - 0.5 / n) / n
    return float(np.sqrt(variance)) / len(classes)


def recalls(
    predicted_M: np.ndarray, labels_M: np.ndarray, names: Sequence[str], groups_M: np.ndarray | None
) -> list[list[Any]]:
    """Return [class, number of test images, recall, low, high] for every class with test images.

    low and high are Wilson's interval at `LEVEL`, with the number of groups as the number of independent images.

    Args:
        names: names of the classes.
        groups_M: numbers, equal for test images that belong together; None where no images do.
    """
    from scipy.special import ndtri

    made, z = list[list[Any]](), float(ndtri((1 + LEVEL) / 2))
    for label in np.unique(labels_M):
        of_class_M = labels_M == label
        n = int(of_class_M.sum()) if groups_M is None else len(np.unique(groups_M[of_class_M]))
        recall = float((predicted_M[of_class_M] == label).mean())
        middle = (recall + z**2 / (2 * n)) / (1 + z**2 / n)
        half = z / (1 + z**2 / n) * (recall * (1 - recall) / n + z**2 / (4 * n**2)) ** 0.5
        ends = float(max(0.0, min(recall, middle - half))), float(min(1.0, max(recall, middle + half)))
        made.append([names[label], int(of_class_M.sum()), recall, *ends])
    return made


def _chance(metric: str, labels_M: np.ndarray, number: int) -> float:
    """Return the value that a metric has for random guesses which choose all classes equally often.

    Args:
        number: number of classes.
    """
    if metric != MACRO_F1:
        return 1 / number
    shares_K = np.bincount(labels_M, minlength=number) / len(labels_M)
    return float(np.mean(2 * shares_K / number / (shares_K + 1 / number)))
