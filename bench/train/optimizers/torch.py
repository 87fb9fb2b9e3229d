"""Optimizers of torch by the names of its classes: torch:NAdam, torch:RAdam, torch:RMSprop, …

They get the recipe's rate, weight decay, betas where they are two, and momentum where they have one.
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
"""They evaluate the loss more than once, take matrices alone (timm:muon takes all weights), are no optimizer, need the
gradients of the whole set, or take sparse ones."""


def names() -> tuple[str, ...]:
    """Classes of torch.optim that take the weights of any network."""
    from torch import optim

    classes = {name: value for name, value in vars(optim).items() if inspect.isclass(value)}
    return tuple(sorted(n for n, c in classes.items() if issubclass(c, optim.Optimizer) and n not in LEFT_OUT))


def make(weights: Sequence[nn.Parameter], recipe: Recipe) -> torch.optim.Optimizer:
    """The optimizer of this class."""
    from torch import optim

    kind = getattr(optim, suffix(recipe.optimizer))
    more = {"momentum": recipe.momentum} if "momentum" in inspect.signature(kind).parameters else {}
    made: torch.optim.Optimizer = kind(
        one_group(weights), lr=recipe.lr, weight_decay=recipe.weight_decay, **more, **betas_of(kind, recipe)
    )
    return made


OPTIMIZER = Optimizer(make=make, names=names, moments=lambda recipe: 3)
