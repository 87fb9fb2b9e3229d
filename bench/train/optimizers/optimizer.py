"""An optimizer as a recipe names it."""

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
    """A file in this folder exports one as `OPTIMIZER`.

    Attributes:
        make: (weights, recipe) -> torch's optimizer at rate `recipe.lr`, `recipe.weight_decay` on every weight. Its
            state is tensors, numbers and truth values, by weight; numbers of a group may change too.
        moments: recipe -> numbers that it keeps for each weight, at most.
        usual_rate: recipe -> rate at which people use it, over that of AdamW: where a search begins.
        fused: it takes the norm for clipping as `grad_scale`, treats every number of a weight alike, so that weights
            may be sharded, and can be recorded as a CUDA graph.
    """

    make: Callable[[Sequence[nn.Parameter], Recipe], torch.optim.Optimizer]
    moments: Callable[[Recipe], int] = lambda recipe: 2
    usual_rate: Callable[[Recipe], float] = lambda recipe: 1.0
    fused: bool = False
