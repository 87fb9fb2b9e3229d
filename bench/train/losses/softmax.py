"""Softmax cross-entropy, computed in float32 whatever the dtype of the logits. Label smoothing mixes in the uniform
distribution, as in torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from bench.study.cell import Recipe
from bench.train.losses.loss import Loss

if TYPE_CHECKING:
    from torch import Tensor


def make(recipe: Recipe) -> Callable[[Tensor, Tensor], Tensor]:
    """Return a function (logits_BK, labels) that computes torch's cross-entropy, as a mean over images."""
    from torch.nn import functional as F

    smoothing = recipe.label_smoothing

    def softmax(logits_BK: Tensor, labels: Tensor) -> Tensor:
        return F.cross_entropy(logits_BK.float(), labels, label_smoothing=smoothing)

    return softmax


LOSS = Loss(make=make)
