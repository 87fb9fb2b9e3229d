"""The optimizer of a recipe."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from bench.core.spec import Recipe


def _bare(method: Any) -> Any:
    """A method of a torch optimizer without what torch wraps around it for `torch.compile`."""
    return getattr(method, "__wrapped__", method)


class _Eager:
    """An optimizer that is never compiled. torch's own methods import its compiler at their first call, which takes as
    long again as importing torch: more than a short cell trains."""

    zero_grad = _bare(Optimizer.zero_grad)
    add_param_group = _bare(Optimizer.add_param_group)


class AdamW(_Eager, torch.optim.AdamW):
    """torch's; see `_Eager`."""

    step = torch.no_grad()(_bare(torch.optim.AdamW.step))


class SGD(_Eager, torch.optim.SGD):
    """torch's; see `_Eager`."""

    step = torch.no_grad()(_bare(torch.optim.SGD.step))


def make_optimizer(model: nn.Module, recipe: Recipe) -> Optimizer:
    """ "adamw": the paper's Adam, decoupled weight decay on every parameter, biases and norms too, as flax.optim.Adam
    had it. "sgd": momentum without dampening, weight decay added to the gradient, as BiT was trained."""
    parameters, lr, decay = model.parameters(), recipe.lr, recipe.weight_decay
    if recipe.optimizer == "sgd":
        return SGD(parameters, lr=lr, momentum=recipe.momentum, weight_decay=decay, fused=True)
    return AdamW(parameters, lr=lr, betas=recipe.betas, weight_decay=decay, fused=True)
