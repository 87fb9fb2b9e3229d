"""Optimizers of timm, by the names that its factory knows: timm:muon, timm:lion, timm:adafactorbv, …

They are given the recipe's learning rate, its weight decay (on every weight; whether it is decoupled is the optimizer's
own convention), its momentum if timm's factory passes it on, and its betas if they take two.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from bench.study.cell import Recipe
from bench.train.optimizers._pairs import betas_of, one_group
from bench.train.optimizers.optimizer import Optimizer
from bench.train.parts import suffix

if TYPE_CHECKING:
    import torch
    from torch import nn

LEFT_OUT = ("adahessian", "kron", "bnb", "fused")
"""Beginnings of the names of optimizers that cannot be used: they need second derivatives, take random numbers
that no checkpoint holds, or come in packages that need a GPU."""


def names() -> tuple[str, ...]:
    """Return the names of timm's optimizers whose state a checkpoint can hold, such as "muon"."""
    from timm.optim import list_optimizers

    return tuple(name for name in map(str, list_optimizers()) if not name.startswith(LEFT_OUT))


def make(weights: Sequence[nn.Parameter], recipe: Recipe) -> torch.optim.Optimizer:
    """Return the optimizer that the recipe names, made by timm's factory for a list of weights."""
    from timm.optim import create_optimizer_v2, get_optimizer_class

    name = suffix(recipe.optimizer)
    made: torch.optim.Optimizer = create_optimizer_v2(
        one_group(weights),
        opt=name,
        lr=recipe.lr,
        weight_decay=recipe.weight_decay,
        momentum=recipe.momentum,
        **betas_of(get_optimizer_class(name, bind_defaults=False), recipe),  # type: ignore[arg-type]
    )
    return made


USUAL_RATES = {"muon": 10.0, "nmuon": 10.0, "lion": 0.1, "sgd": 30.0, "momentum": 30.0, "sgdw": 30.0, "lamb": 5.0}
"""Optimizer -> its usual learning rate divided by AdamW's, from its authors or from timm's recipes; 1 for others."""


def usual_rate(recipe: Recipe) -> float:
    """Return the learning rate at which a search begins, as a multiple of AdamW's."""
    return USUAL_RATES.get(suffix(recipe.optimizer), 1.0)


OPTIMIZER = Optimizer(make=make, names=names, moments=lambda recipe: 3, usual_rate=usual_rate)
