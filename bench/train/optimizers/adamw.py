"""The paper's Adam: decoupled weight decay on every parameter, biases and norms too, as flax.optim.Adam had it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from bench.study.cell import Recipe
from bench.train.optimizers.optimizer import Optimizer

if TYPE_CHECKING:
    import torch
    from torch import nn


def make(weights: Sequence[nn.Parameter], recipe: Recipe) -> torch.optim.Optimizer:
    """torch's AdamW in its fused form."""
    from bench.train.optimizers._eager import AdamW

    return AdamW(weights, lr=recipe.lr, betas=recipe.betas, weight_decay=recipe.weight_decay, fused=True)


OPTIMIZER = Optimizer(make=make, fused=True)
