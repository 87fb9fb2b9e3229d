"""What the probing tasks share: bounded parts of a split, and a score with its standard error."""

from __future__ import annotations

import math
from typing import Any

from bench.data.images import ImageSet
from bench.data.subset import nested
from bench.tasks._contract import Score


def balanced_part(images: ImageSet, limit: int | None) -> ImageSet:
    """The nested, class-balanced part of `limit` images; all of them where there are no more, or limit is None."""
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
    detail: tuple[tuple[str, Any], ...] = (),
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
        detail=detail,
    )
