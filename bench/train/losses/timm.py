"""Losses of timm by the names of its classes: timm:BinaryCrossEntropy, the mean over classes too, as in "ResNet strikes
back"; timm:SoftTargetCrossEntropy. Label smoothing is timm's: it mixes in the uniform distribution over classes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from bench.study.cell import Recipe
from bench.train.losses.loss import Loss, targets_of
from bench.train.parts import suffix

if TYPE_CHECKING:
    from torch import Tensor


def names() -> tuple[str, ...]:
    """The classes that take shares of every class."""
    return ("BinaryCrossEntropy", "SoftTargetCrossEntropy")


def make(recipe: Recipe) -> Callable[[Tensor, Tensor], Tensor]:
    """timm's module, on logits in float32 and shares of every class."""
    from timm import loss

    module, smoothing = getattr(loss, suffix(recipe.loss))(), recipe.label_smoothing

    def mean(logits_BK: Tensor, labels: Tensor) -> Tensor:
        targets_BK = targets_of(logits_BK, labels) * (1.0 - smoothing) + smoothing / logits_BK.shape[1]
        value: Tensor = module(logits_BK.float(), targets_BK)
        return value

    return mean


LOSS = Loss(make=make, names=names)
