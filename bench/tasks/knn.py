"""Classify by k nearest neighbours on frozen features: cosine similarity, votes weighted by
exp(similarity / temperature).

This is the protocol of DINO (Caron et al. 2021, arXiv:2104.14294, section 4.1: k = 20, temperature 0.07). Nothing is
fitted or chosen.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from bench.core.errors import UserError
from bench.core.metrics import check_several
from bench.study.record import Score
from bench.tasks.task import Task, TaskContext, accuracy_score, balanced_part, few_images, judged_by

CHUNK = 1_000  # test images classified at a time, which bounds the memory of the similarities


def evaluate(
    context: TaskContext,
    *,
    data: str,
    neighbours: int = 20,
    temperature: float = 0.07,
    train_limit: int | None = 10_000,
    test_limit: int | None = 2_000,
    metrics: Sequence[str] = (),
) -> list[Score]:
    """Classify each test image by its nearest training images in the space of frozen features, and score the
    predictions.

    Args:
        data: name of the set.
        neighbours: number of nearest training images that vote.
        temperature: a vote weighs exp(cosine similarity / temperature).
        train_limit, test_limit: sizes of nested, class-balanced parts of the two splits; None takes all.
        metrics: metrics in addition to accuracy, of `bench.core.metrics`. For images with several labels each, the
            metrics are always mAP and macro-F1.

    Raises:
        UserError: an option is out of range, or the data is not on this machine.
    """
    if neighbours < 1 or temperature <= 0:
        raise UserError(f"k-NN needs neighbours >= 1 and temperature > 0, not {neighbours} and {temperature}.")
    train = balanced_part(context.load(data, "train"), train_limit, several=True)
    test = balanced_part(context.load(data, "test"), test_limit, several=True)
    if train.several:
        check_several(metrics, name=train.name)
    train_ND, test_MD = context.features(train.images_NHWC), context.features(test.images_NHWC)
    head: dict[str, Any] = {"task": "knn", "data": data, "num_test": len(test), "num_classes": test.num_classes}
    detail = {"neighbours": neighbours, "temperature": temperature, "num_train": len(train)}
    if not (np.isfinite(train_ND).all() and np.isfinite(test_MD).all()):
        return [accuracy_score(None, **head, detail={"reason": "features are not finite"})]
    if train.several:
        from bench.tasks import _several

        how: dict[str, Any] = {"count": neighbours, "temperature": temperature}
        scores_MK, threshold = _several.neighbours(train_ND, train.targets_NK, test_MD, None, **how)
        return _several.scores(scores_MK, test, threshold=threshold, detail=detail, **head)
    predicted_M = predict(
        train_ND, train.labels_N, test_MD, num_classes=train.num_classes, neighbours=neighbours, temperature=temperature
    )
    judge: dict[str, Any] = {"content_hash": test.content_hash, "groups_M": test.groups_N, "names": test.class_names}
    judge |= {"copies_M": context.copies(test)}
    return judged_by(metrics, predicted_M, test.labels_N, **judge, **head, detail=detail)


def forward_images(
    *, num_train: int, num_test: int, train_limit: int | None = 10_000, test_limit: int | None = 2_000, **_: object
) -> int:
    """Return how many images pass through the network in one evaluation, to forecast its cost.

    Args:
        num_train, num_test: numbers of images of the two splits; other arguments are those of `evaluate`.
    """
    return min(num_train, train_limit or num_train) + min(num_test, test_limit or num_test)


def predict(
    train_ND: np.ndarray,
    labels_N: np.ndarray,
    test_MD: np.ndarray,
    *,
    num_classes: int,
    neighbours: int,
    temperature: float,
) -> np.ndarray:
    """Return the predicted class of every test image: (M,).

    Args:
        train_ND, labels_N: features and classes of the training images.
        neighbours, temperature: see `evaluate`.
    """
    train_ND, test_MD = _unit(train_ND), _unit(test_MD)
    count = min(neighbours, len(train_ND))
    predicted = []
    for start in range(0, len(test_MD), CHUNK):
        similarity_BN = test_MD[start : start + CHUNK] @ train_ND.T
        nearest_BK = np.argpartition(-similarity_BN, count - 1, axis=1)[:, :count]
        weight_BK = np.exp((np.take_along_axis(similarity_BN, nearest_BK, axis=1) - 1.0) / temperature)
        votes_BC = np.zeros((len(similarity_BN), num_classes))
        np.add.at(votes_BC, (np.arange(len(votes_BC))[:, None], labels_N[nearest_BK]), weight_BK)
        predicted.append(votes_BC.argmax(1))
    return np.concatenate(predicted)


def _unit(features_ND: np.ndarray) -> np.ndarray:
    features_ND = np.asarray(features_ND, dtype=np.float64)
    return features_ND / np.maximum(np.linalg.norm(features_ND, axis=1, keepdims=True), 1e-12)


TASK = Task(
    evaluate=evaluate,
    forward_images=forward_images,
    rehearsed=few_images,
    several_labels=True,
)
