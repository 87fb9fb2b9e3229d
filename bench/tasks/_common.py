"""What the tasks share: bounded parts of a split, and scores with their standard errors."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from bench.core.errors import UserError
from bench.core.record import Score
from bench.data.image_set import ImageSet
from bench.data.subset import nested
from bench.store.prediction_bits import to_detail

NO_DETAIL: Mapping[str, Any] = MappingProxyType({})


def balanced_part(images: ImageSet, limit: int | None) -> ImageSet:
    """The nested, class-balanced part of `limit` images; all of them where there are no more, or limit is None.

    Raises:
        UserError: a limit below 1.
    """
    if limit is not None and limit < 1:
        raise UserError(f"A task cannot use {limit} images of {images.name}, {images.split}.", "At least 1, or None.")
    if limit is None or limit >= len(images):
        return images
    return images.take(nested(images.labels_N, limit, keys_N=images.content_keys_N))


def accuracy_score(
    value: float | None,
    *,
    task: str,
    data: str,
    num_test: int,
    num_classes: int,
    metric: str = "accuracy",
    shots: int | None = None,
    draw: int | None = None,
    detail: Mapping[str, Any] = NO_DETAIL,
) -> Score:
    """A score with the binomial standard error over test images and chance = 1 / classes; None stays None."""
    return Score(
        task=task,
        data=data,
        metric=metric,
        value=None if value is None else float(value),
        stderr=None if value is None else math.sqrt(max(0.0, value * (1.0 - value)) / num_test),
        num_test=num_test,
        num_classes=num_classes,
        chance=1.0 / num_classes,
        shots=shots,
        draw=draw,
        detail=dict(detail),
    )


def judged(
    right_M: np.ndarray,
    *,
    copies_M: np.ndarray | None = None,
    content_hash: str | None = None,
    detail: Mapping[str, Any] = NO_DETAIL,
    **head: Any,
) -> Score:
    """An accuracy from which test images were classified right; in `detail` also without copies of upstream images.

    Args:
        right_M: bool, one per test image.
        copies_M: bool, which test images upstream holds a copy of (`TaskContext.copies`); None: upstream is unknown.
        content_hash: of the test images; given where the record is to say which of them were right.
        head: as for `accuracy_score`.

    Returns:
        A score with `num_duplicates` and `value_without_duplicates` (None when every image is a copy) in its detail,
        and `correct` (see `bench.store.prediction_bits`) where the hash is given. Its value is None without images.
    """
    if not len(right_M):
        return accuracy_score(None, detail=detail, **head)
    if copies_M is not None:
        kept_M = right_M[~copies_M]
        value = float(kept_M.mean()) if len(kept_M) else None
        detail = {**detail, "num_duplicates": int(copies_M.sum()), "value_without_duplicates": value}
    if content_hash is not None:
        detail = dict([*detail.items(), to_detail(right_M, content_hash=content_hash)])
    return accuracy_score(float(right_M.mean()), detail=detail, **head)
