"""SGD with momentum and without dampening, as BiT was trained; weight decay is added to the gradient."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from bench.study.cell import Recipe
from bench.train.optimizers.optimizer import Optimizer

if TYPE_CHECKING:
    import torch
    from torch import nn


def make(weights: Sequence[nn.Parameter], recipe: Recipe) -> torch.optim.Optimizer:
    """Return torch's fused SGD with the recipe's hyperparameters."""
    from bench.train.optimizers._eager import SGD

    return SGD(weights, lr=recipe.lr, momentum=recipe.momentum, weight_decay=recipe.weight_decay, fused=True)


OPTIMIZER = Optimizer(
    make=make, moments=lambda recipe: int(recipe.momentum > 0), usual_rate=lambda recipe: 30.0, fused=True
)
