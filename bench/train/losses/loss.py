"""A loss as a recipe names it."""

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
    """A file in this folder exports one as `LOSS`.

    Attributes:
        make: recipe -> function of (logits_BK, labels) that gives the batch's mean. Labels are class numbers labels_B;
            where an augmentation mixes images they are shares of every class, targets_BK in float32.
    """

    make: Callable[[Recipe], Callable[[Tensor, Tensor], Tensor]]


def targets_of(logits_BK: Tensor, labels: Tensor) -> Tensor:
    """Labels of either form as shares of every class, targets_BK in float32."""
    import torch

    if labels.dim() == logits_BK.dim():
        return labels.float()
    return torch.zeros_like(logits_BK, dtype=torch.float32).scatter_(1, labels[:, None], 1.0)
