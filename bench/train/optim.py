"""The optimizer of a recipe."""

from __future__ import annotations

import torch
from torch import nn

from bench.spec import Recipe


def make_optimizer(model: nn.Module, recipe: Recipe) -> torch.optim.Optimizer:
    """The paper's Adam: decoupled weight decay on every parameter, as flax.optim.Adam had it."""
    return torch.optim.AdamW(
        model.parameters(), lr=recipe.lr, betas=recipe.betas, weight_decay=recipe.weight_decay, fused=True
    )
