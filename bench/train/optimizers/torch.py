"""Optimizers of torch, named by their classes: torch:NAdam, torch:RAdam, torch:RMSprop, …

They are given the recipe's learning rate and weight decay, its betas if they have two, and its momentum if they have
one.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import TYPE_CHECKING

from bench.study.cell import Recipe
from bench.train.optimizers._pairs import betas_of, one_group
from bench.train.optimizers.optimizer import Optimizer
from bench.train.parts import suffix

if TYPE_CHECKING:
    import torch
    from torch import nn

LEFT_OUT = ("LBFGS", "Muon", "Optimizer", "Rprop", "SparseAdam")
"""Classes that cannot be used. In this order, a class evaluates the loss more than once, takes matrices only (timm:muon
takes all weights), is no optimizer, needs the gradients of the whole set, or takes sparse gradients."""


def names() -> tuple[str, ...]:
    """Return the names of the classes in torch.optim that take the weights of any network, such as "NAdam"."""
    from torch import optim

    classes = {name: value for name, value in vars(optim).items() if inspect.isclass(value)}
    return tuple(sorted(n for n, c in classes.items() if issubclass(c, optim.Optimizer) and n not in LEFT_OUT))


def make(weights: Sequence[nn.Parameter], recipe: Recipe) -> torch.optim.Optimizer:
    """Return an optimizer of the class that the recipe names, with the recipe's hyperparameters."""
    from torch import optim

    kind = getattr(optim, suffix(recipe.optimizer))
    more = {"momentum": recipe.momentum} if "momentum" in inspect.signature(kind).parameters else {}
    made: torch.optim.Optimizer = kind(
        one_group(weights), lr=recipe.lr, weight_decay=recipe.weight_decay, **more, **betas_of(kind, recipe)
    )
    return made


OPTIMIZER = Optimizer(make=make, names=names, moments=lambda recipe: 3)
