"""What a task is given and what it returns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from bench.core.errors import UserError
from bench.core.record import Score
from bench.core.spec import Recipe
from bench.data.image_set import ImageSet


class Unsuited(UserError):
    """A task cannot judge this model, or by these images, however often it is tried.

    Args:
        what, fix: as of every `UserError`.
        missing: the scores without a value that a record takes instead, so that a trained model's others stand.
    """

    def __init__(self, what: str, fix: str = "", *, missing: Sequence[Score]) -> None:
        super().__init__(what, fix)
        self.missing = [replace(score, detail={**score.detail, "reason": what}) for score in missing]


@dataclass(frozen=True, kw_only=True)
class FineTuned:
    """A fine-tuned copy of a model.

    Attributes:
        logits: uint8 images_NHWC (any size, 1 or 3 channels) -> float32 logits_NK, in test mode.
        losses_T: mean loss of every step's batch, before its update. diverged: whether one was not finite, or a weight
            in the end.
        image_size: pixels per side that it takes.
        seconds, train_flops: what the training cost; FLOPs by convention.
    """

    logits: Callable[[np.ndarray], np.ndarray]
    losses_T: np.ndarray
    diverged: bool
    image_size: int
    seconds: float
    train_flops: Mapping[str, int]


class FineTune(Protocol):
    """Fine-tunes a copy of the context's model on all of `images`; see bench/train/finetune.py."""

    def __call__(
        self, images: ImageSet, *, recipe: Recipe, steps: int, image_size: int | None = None, purpose: str = ""
    ) -> FineTuned: ...


@dataclass(frozen=True, kw_only=True)
class TaskContext:
    """A trained model as a task sees it.

    Attributes:
        features: uint8 images_NHWC (any size, 1 or 3 channels) -> float32 features_ND of the frozen model, in test
            mode, resized and repeated to what the model takes, never dropping a last batch.
        model: the torch module itself; None when only features exist.
        fine_tune: trains a copy of the model on labelled images; None when only features exist.
        seed: the cell's seed. Few-shot draws use their own stream, so that every model sees the same draws.
        load: (data set name, split) -> ImageSet.
        upstream: what the model was trained on; None when that is not known.
    """

    features: Callable[[np.ndarray], np.ndarray]
    load: Callable[[str, str], ImageSet]
    seed: int = 0
    model: Any = None
    fine_tune: FineTune | None = None
    upstream: ImageSet | None = None
    data_root: Path | None = None

    def copies(self, test: ImageSet) -> np.ndarray | None:
        """Which test images upstream holds a copy of, bool (M,); None when upstream is not known."""
        if self.upstream is None:
            return None
        from bench.data.dedup import copies

        return copies(self.upstream, test)
