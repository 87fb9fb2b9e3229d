"""Losses of timm, named by their classes: timm:BinaryCrossEntropy (the mean over images and classes, as in "ResNet
strikes back") and timm:SoftTargetCrossEntropy. Label smoothing mixes in the uniform distribution over classes, as in
timm."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from bench.study.cell import Recipe
from bench.train.losses.loss import Loss, targets_of
from bench.train.parts import suffix

if TYPE_CHECKING:
    from torch import Tensor


def names() -> tuple[str, ...]:
    """Return the names of timm's loss classes that take the fractions of every class as targets."""
    return ("BinaryCrossEntropy", "SoftTargetCrossEntropy")


def make(recipe: Recipe) -> Callable[[Tensor, Tensor], Tensor]:
    """Return timm's module as a loss function. It is given logits in float32 and the fractions of every class."""
    from timm import loss

    module, smoothing = getattr(loss, suffix(recipe.loss))(), recipe.label_smoothing

    def mean(logits_BK: Tensor, labels: Tensor) -> Tensor:
        targets_BK = targets_of(logits_BK, labels) * (1.0 - smoothing) + smoothing / logits_BK.shape[1]
        value: Tensor = module(logits_BK.float(), targets_BK)
        return value

    return mean


LOSS = Loss(make=make, names=names)
