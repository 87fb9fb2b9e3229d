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
    """Return the names of those loss classes of timm whose targets are each image's fractions of the classes."""
    return ("BinaryCrossEntropy", "SoftTargetCrossEntropy")


def make(recipe: Recipe) -> Callable[[Tensor, Tensor], Tensor]:
    """Return a function (logits_BK, labels) that computes the loss of timm which the recipe names. timm's module is
    given logits in float32, and each image's fractions of the classes as targets."""
    from timm import loss

    module, smoothing = getattr(loss, suffix(recipe.loss))(), recipe.label_smoothing

    def mean(logits_BK: Tensor, labels: Tensor) -> Tensor:
        targets_BK = targets_of(logits_BK, labels) * (1.0 - smoothing) + smoothing / logits_BK.shape[1]
        value: Tensor = module(logits_BK.float(), targets_BK)
        return value

    return mean


LOSS = Loss(make=make, names=names)
