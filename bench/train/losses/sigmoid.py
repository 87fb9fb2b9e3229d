"""Sigmoid cross-entropy: every class is decided on its own, and an image's loss is the sum over classes, as in the ViT
paper's pre-training.

Label smoothing s makes targets 1 − s and s (the paper's public configurations have 0.9999 and 0.0001).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from bench.study.cell import Recipe
from bench.train.losses.loss import Loss

if TYPE_CHECKING:
    from torch import Tensor


def make(recipe: Recipe) -> Callable[[Tensor, Tensor], Tensor]:
    """Return a function (logits_BK, labels) that computes torch's binary cross-entropy: the sum over classes, as a mean
    over images. It computes in float32 whatever the dtype of the logits."""
    import torch
    from torch.nn import functional as F

    smoothing = recipe.label_smoothing

    def sigmoid(logits_BK: Tensor, labels: Tensor) -> Tensor:
        if labels.dim() == logits_BK.dim():
            targets_BK = labels.float() * (1.0 - 2.0 * smoothing) + smoothing
        else:
            targets_BK = torch.full_like(logits_BK, smoothing, dtype=torch.float32)
            targets_BK.scatter_(1, labels[:, None], 1.0 - smoothing)
        return F.binary_cross_entropy_with_logits(logits_BK.float(), targets_BK, reduction="sum") / len(logits_BK)

    return sigmoid


LOSS = Loss(make=make)
