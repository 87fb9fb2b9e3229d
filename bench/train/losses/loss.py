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
        make: recipe -> function of (logits_BK, labels) that returns the mean loss of the batch. Labels are class
            numbers labels_B, or, where an augmentation mixes images, the fractions of every class, targets_BK in
            float32.
    """

    make: Callable[[Recipe], Callable[[Tensor, Tensor], Tensor]]


def targets_of(logits_BK: Tensor, labels: Tensor) -> Tensor:
    """Return labels of either form as fractions of every class: targets_BK in float32."""
    import torch

    if labels.dim() == logits_BK.dim():
        return labels.float()
    return torch.zeros_like(logits_BK, dtype=torch.float32).scatter_(1, labels[:, None], 1.0)
