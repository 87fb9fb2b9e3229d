"""The class of an optimizer that a recipe can name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bench.study.cell import Recipe
from bench.train.parts import Part

if TYPE_CHECKING:
    import torch
    from torch import nn


@dataclass(frozen=True, kw_only=True)
class Optimizer(Part):
    """An optimizer. A file in this folder exports one as `OPTIMIZER`.

    Attributes:
        make: (weights, recipe) -> a torch optimizer with learning rate `recipe.lr` and `recipe.weight_decay` on every
            weight. Its state may hold tensors, numbers and booleans per weight; numbers of a parameter group may change
            too.
        moments: recipe -> how many values its state holds at most per element of a weight, to estimate memory.
        usual_rate: recipe -> its usual learning rate divided by AdamW's; a search for the learning rate begins there.
        fused: whether it takes the factor for clipping as `grad_scale`, treats every element of a weight alike (so that
            weights may be sharded), and can be recorded as a CUDA graph.
    """

    make: Callable[[Sequence[nn.Parameter], Recipe], torch.optim.Optimizer]
    moments: Callable[[Recipe], int] = lambda recipe: 2
    usual_rate: Callable[[Recipe], float] = lambda recipe: 1.0
    fused: bool = False
