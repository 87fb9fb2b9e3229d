"""Probes and metrics for images with several labels each, or none (multi-label classification).

mAP, the mean over labels of the average precision, evaluates the order of a probe's scores; macro-F1 evaluates its
decisions at a threshold. Both are scikit-learn's. Standard errors come from the resamples of `_metrics.weights`, so
that models are compared in pairs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from bench.core.metrics import MACRO_F1, MEAN_AP
from bench.data.image_set import ImageSet
from bench.store import resampled
from bench.study.record import Score
from bench.tasks import _metrics
from bench.tasks._folds import Parts, folds

STRENGTHS = (1e-3, 1e-2, 1e-1, 1.0)  # values of C of scikit-learn's logistic regression, the inverse of the penalty
RIDGES = tuple(10.0**power for power in range(-1, 6))
FOLDS = 3
ENDS = (5, 95)  # percentiles over resamples that are the ends of a label's interval
NEIGHBOURS, TEMPERATURE = 20, 0.07
DIGITS = 9  # decimals of a score: scores of images whose neighbours all have a label are then equal, however summed
LABELS = "labels"  # key in a score's detail of rows (label, images with it, AP, its interval, F1, its interval)

Decide = Callable[[np.ndarray, np.ndarray, np.ndarray, Parts | None], tuple[np.ndarray, float]]
"""(train_ND, targets_NK, test_MD, folds) -> (scores_MK, the score above which an image has the label)."""


def ridge(
    train_ND: np.ndarray, targets_NK: np.ndarray, test_MD: np.ndarray, parts: Parts | None
) -> tuple[np.ndarray, float]:
    """Score labels by ridge regression on targets -1 and 1. Its strength is chosen by leave-one-out, or by folds if
    `parts` gives them.

    Args:
        targets_NK: whether each training image has each label.

    Returns:
        (scores_MK of the test images, 0: the score above which an image is decided to have a label).
    """
    from sklearn.linear_model import RidgeCV

    x_ND, x_MD = _standardised(train_ND, test_MD)
    model = RidgeCV(alphas=RIDGES, cv=parts).fit(x_ND, np.where(targets_NK, 1.0, -1.0))
    return model.predict(x_MD).reshape(len(test_MD), -1), 0.0


def logistic(
    train_ND: np.ndarray, targets_NK: np.ndarray, test_MD: np.ndarray, parts: Parts | None
) -> tuple[np.ndarray, float]:
    """Score labels by a logistic regression (a sigmoid) per label. All have the same strength of the penalty, the one
    with the best mAP in cross-validation.

    Args:
        targets_NK: whether each training image has each label.
        parts: folds of the cross-validation; None takes a C of 0.1.

    Returns:
        (probabilities_MK of the test images, 0.5: the one above which an image is decided to have a label).
    """
    strength = 1e-1
    if parts is not None:
        reached = []
        for strength in STRENGTHS:
            scores_NK = np.zeros(targets_NK.shape)
            for fitted_N, left_N in parts:
                scores_NK[left_N] = _sigmoids(train_ND[fitted_N], targets_NK[fitted_N], train_ND[left_N], strength)
            reached.append(mean_ap(scores_NK, targets_NK))
        strength = STRENGTHS[int(np.argmax(reached))]
    return _sigmoids(train_ND, targets_NK, test_MD, strength), 0.5


def _sigmoids(train_ND: np.ndarray, targets_NK: np.ndarray, test_MD: np.ndarray, strength: float) -> np.ndarray:
    """Return the probabilities (M, K) of labels for test images by a logistic regression per label. A label that all
    training images have, or none, has its frequency (1 or 0) as its probability.

    Args:
        targets_NK: whether each training image has each label.
        strength: C of scikit-learn, the inverse of the penalty.
    """
    from sklearn.linear_model import LogisticRegression

    x_ND, x_MD = _standardised(train_ND, test_MD)
    scores_MK = np.tile(targets_NK.mean(0), (len(test_MD), 1)).astype(float)
    for k in np.flatnonzero(targets_NK.any(0) & ~targets_NK.all(0)):
        model = LogisticRegression(C=strength, max_iter=300).fit(x_ND, targets_NK[:, k])
        scores_MK[:, k] = model.predict_proba(x_MD)[:, 1]
    return scores_MK


def neighbours(
    train_ND: np.ndarray,
    targets_NK: np.ndarray,
    test_MD: np.ndarray,
    parts: Parts | None,
    *,
    count: int = NEIGHBOURS,
    temperature: float = TEMPERATURE,
) -> tuple[np.ndarray, float]:
    """Score each label by the fraction of a test image's nearest neighbours that have it, weighted as in the task
    `knn`.

    Args:
        targets_NK: whether each training image has each label.
        parts: not used, because nothing is chosen.
        count: number of neighbours.
        temperature: of the weights exp(cosine similarity / temperature).

    Returns:
        (weighted fractions_MK, 0.5: the fraction above which an image is decided to have a label).
    """
    x_ND, x_MD = (np.asarray(x, dtype=np.float64) for x in (train_ND, test_MD))
    unit_ND, unit_MD = (x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-12) for x in (x_ND, x_MD))
    alike_MN = unit_MD @ unit_ND.T
    nearest_Mk = np.argsort(-alike_MN, axis=1, kind="stable")[:, :count]
    weights_Mk = np.exp((np.take_along_axis(alike_MN, nearest_Mk, axis=1) - 1) / temperature)
    weights_Mk /= weights_Mk.sum(1, keepdims=True)
    shares_MK = np.einsum("mk,mkl->ml", weights_Mk, targets_NK[nearest_Mk].astype(float))
    return shares_MK.round(DIGITS), 0.5


WAYS: dict[str, Decide] = {"ridge": ridge, "knn": neighbours, "logistic": logistic}


def _standardised(train_ND: np.ndarray, test_MD: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    mean_D, std_D = train_ND.mean(0, dtype=np.float64), train_ND.std(0, dtype=np.float64) + 1e-5
    return (train_ND - mean_D) / std_D, (test_MD - mean_D) / std_D


def parts_of(images: ImageSet) -> Parts | None:
    """Return folds for cross-validation on labelled images with several labels each: for each fold, (positions to fit,
    positions left out). They are balanced by each image's rarest label (`labels_N`). None where such a label has too
    few images, or there are too few groups."""
    return folds(images.labels_N, images.groups_N, FOLDS)


def cross_validated(way: Decide, x_ND: np.ndarray, targets_NK: np.ndarray, parts: Parts) -> tuple[float, float]:
    """Return the cross-validated (mAP, macro-F1) on labelled images of a way of adapting (a function such as `ridge`).

    Args:
        targets_NK: whether each image has each label.
        parts: folds of the cross-validation.
    """
    scores_NK, decided_NK = np.zeros(targets_NK.shape), np.zeros(targets_NK.shape, dtype=bool)
    for fitted_N, left_N in parts:
        scores_NK[left_N], threshold = way(x_ND[fitted_N], targets_NK[fitted_N], x_ND[left_N], None)
        decided_NK[left_N] = scores_NK[left_N] > threshold
    return mean_ap(scores_NK, targets_NK), macro_f1(decided_NK, targets_NK)


def mean_ap(scores_MK: np.ndarray, targets_MK: np.ndarray) -> float:
    """Return mAP: the mean of scikit-learn's average precision over those labels that at least one image has.

    Args:
        scores_MK: score of each label for each image; only their order matters.
        targets_MK: whether each image has each label.
    """
    from sklearn.metrics import average_precision_score

    has_K = targets_MK.any(0)
    return float(average_precision_score(targets_MK[:, has_K], scores_MK[:, has_K], average="macro"))


def macro_f1(decided_MK: np.ndarray, targets_MK: np.ndarray) -> float:
    """Return the mean of scikit-learn's F1 over those labels that at least one image has.

    Args:
        decided_MK: whether each image was decided to have each label.
        targets_MK: whether each image has each label.
    """
    from sklearn.metrics import f1_score

    has_K = targets_MK.any(0)
    return float(f1_score(targets_MK[:, has_K], decided_MK[:, has_K], average="macro", zero_division=0))


def scores(
    scores_MK: np.ndarray,
    test: ImageSet,
    *,
    threshold: float,
    keep: bool = True,
    validation: tuple[float, float] | None = None,
    detail: Mapping[str, Any],
    **head: Any,
) -> list[Score]:
    """Return two scores: mAP, whose detail has average precision and F1 of every label with intervals, and macro-F1.

    Args:
        scores_MK: score of each label for each test image.
        threshold: an image is decided to have the labels whose scores are above it.
        keep: whether the details hold the values on resamples, and those of every label.
        validation: cross-validated (mAP, macro-F1); None where there was no cross-validation.
        detail: detail of both scores.
        head: other fields of the scores.
    """
    targets_MK = test.targets_NK
    has_K, decided_MK = targets_MK.any(0), scores_MK > threshold
    ap_BK, f1_BK = _resampled(scores_MK[:, has_K], decided_MK[:, has_K], targets_MK[:, has_K], test.groups_N)
    values = mean_ap(scores_MK, targets_MK), macro_f1(decided_MK, targets_MK)
    labels = _labels(test, scores_MK, decided_MK, ap_BK, f1_BK)
    chances = (
        float(targets_MK[:, has_K].mean()),
        float(np.mean([2 * p / (1 + p) for p in targets_MK[:, has_K].mean(0)])),
    )
    made = []
    for at, (metric, drawn_BK) in enumerate(((MEAN_AP, ap_BK), (MACRO_F1, f1_BK))):
        drawn_B, own = np.nanmean(drawn_BK, axis=1), dict(detail)
        if keep:
            own |= dict([resampled.to_detail(drawn_B, content_hash=test.content_hash)])
            own |= {"validation": None if validation is None else validation[at]}
            own |= {LABELS: labels} if metric == MEAN_AP else {}
        if test.groups_N is not None:
            own["test_groups"] = len(np.unique(test.groups_N))
        stderr = max(float(drawn_B.std(ddof=1)), 0.5 / len(test))  # resamples of a set without errors do not vary
        made.append(Score(metric=metric, value=values[at], stderr=stderr, chance=chances[at], detail=own, **head))
    return made


def _resampled(
    scores_MK: np.ndarray, decided_MK: np.ndarray, targets_MK: np.ndarray, groups_M: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray]:
    """Return (average precision, F1) of every label in every resample of the test images: each (B, K), NaN where a
    resample has no image with the label.

    Args:
        groups_M: numbers, equal for test images that belong together and are resampled together; None where no images
            do.
    """
    drawn = [np.concatenate([w for _, w in _metrics.weights(len(scores_MK), groups_M)])][0].astype(np.float64)
    ap_BK, f1_BK = (np.full((len(drawn), scores_MK.shape[1]), np.nan) for _ in range(2))
    for k in range(scores_MK.shape[1]):
        order_M = np.argsort(-scores_MK[:, k], kind="stable")
        sorted_M, target_M, weight_BM = scores_MK[order_M, k], targets_MK[order_M, k], drawn[:, order_M]
        last_M = len(sorted_M) - np.searchsorted(sorted_M[::-1], sorted_M, side="left") - 1  # the last of equal scores
        has_BM = weight_BM * target_M
        total_B = has_BM.sum(1)
        known_B = total_B > 0
        precision_BM = (has_BM.cumsum(1) / np.maximum(weight_BM.cumsum(1), 1))[:, last_M]
        ap_BK[known_B, k] = ((has_BM * precision_BM).sum(1) / np.maximum(total_B, 1))[known_B]
        both_B = (weight_BM * (target_M & decided_MK[order_M, k])).sum(1)
        sum_B = total_B + (weight_BM * decided_MK[order_M, k]).sum(1)
        f1_BK[known_B, k] = (2 * both_B / np.maximum(sum_B, 1))[known_B]
    return ap_BK, f1_BK


def _labels(
    test: ImageSet, scores_MK: np.ndarray, decided_MK: np.ndarray, ap_BK: np.ndarray, f1_BK: np.ndarray
) -> list[list[Any]]:
    """Return a row for each label that at least one test image has: [label, number of images with it, average
    precision, its interval's ends, F1, its interval's ends].

    Args:
        ap_BK, f1_BK: average precision and F1 of these labels in every resample; the intervals are their percentiles.
    """
    targets_MK, rows = test.targets_NK, list[list[Any]]()
    for at, k in enumerate(np.flatnonzero(targets_MK.any(0)).tolist()):
        one = slice(k, k + 1)
        ap, f1 = mean_ap(scores_MK[:, one], targets_MK[:, one]), macro_f1(decided_MK[:, one], targets_MK[:, one])
        row: list[Any] = [test.class_names[k], int(targets_MK[:, k].sum())]
        for value, drawn_BK in ((ap, ap_BK), (f1, f1_BK)):
            low, high = np.nanpercentile(drawn_BK[:, at], ENDS).tolist()
            row += [value, min(low, value), max(high, value)]
        rows.append(row)
    return rows
