"""The optimizer of a recipe."""

from __future__ import annotations

import torch
from torch import nn

from bench.spec import Recipe


def make_optimizer(model: nn.Module, recipe: Recipe) -> torch.optim.Optimizer:
    """ "adamw": the paper's Adam, decoupled weight decay on every parameter, biases and norms too, as flax.optim.Adam
    had it. "sgd": momentum without dampening, weight decay added to the gradient, as BiT was trained."""
    parameters, lr, decay = model.parameters(), recipe.lr, recipe.weight_decay
    if recipe.optimizer == "sgd":
        return torch.optim.SGD(parameters, lr=lr, momentum=recipe.momentum, weight_decay=decay, fused=True)
    return torch.optim.AdamW(parameters, lr=lr, betas=recipe.betas, weight_decay=decay, fused=True)
