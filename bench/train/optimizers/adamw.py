"""The ViT paper's Adam: weight decay is decoupled and on every parameter, biases and norms too, as in
flax.optim.Adam."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from bench.study.cell import Recipe
from bench.train.optimizers.optimizer import Optimizer

if TYPE_CHECKING:
    import torch
    from torch import nn


def make(weights: Sequence[nn.Parameter], recipe: Recipe) -> torch.optim.Optimizer:
    """Return torch's fused AdamW with the recipe's hyperparameters."""
    from bench.train.optimizers._eager import AdamW

    return AdamW(weights, lr=recipe.lr, betas=recipe.betas, weight_decay=recipe.weight_decay, fused=True)


OPTIMIZER = Optimizer(make=make, fused=True)
