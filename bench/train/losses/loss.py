"""The class of a loss that a recipe can name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bench.study.cell import Recipe
from bench.train.parts import Part

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Loss(Part):
    """A loss. A file in this folder exports one as `LOSS`.

    Attributes:
        make: recipe -> function (logits_BK, labels) -> mean loss of the batch, a scalar. Labels are class numbers
            labels_B or, where an augmentation mixes images, targets_BK: each image's fractions of the classes, in
            float32.
    """

    make: Callable[[Recipe], Callable[[Tensor, Tensor], Tensor]]


def targets_of(logits_BK: Tensor, labels: Tensor) -> Tensor:
    """Return labels as fractions of the classes: targets_BK in float32, one-hot for class numbers.

    Args:
        logits_BK: logits, which give the number of classes.
        labels: class numbers (B,), or fractions of the classes (B, K).
    """
    import torch

    if labels.dim() == logits_BK.dim():
        return labels.float()
    return torch.zeros_like(logits_BK, dtype=torch.float32).scatter_(1, labels[:, None], 1.0)
