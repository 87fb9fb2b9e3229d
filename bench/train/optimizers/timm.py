"""timm's optimizers by the names of its factory: timm:muon, timm:lion, timm:adafactorbv, …

They get the recipe's rate, weight decay (on every weight; whether it is decoupled is the optimizer's own convention),
momentum where timm's factory hands one on, and betas where they are two.
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
"""Beginnings of names: second derivatives, random numbers that no checkpoint holds, and packages that need a GPU."""


def names() -> tuple[str, ...]:
    """Names of timm's factory whose state a checkpoint can hold."""
    from timm.optim import list_optimizers

    return tuple(name for name in map(str, list_optimizers()) if not name.startswith(LEFT_OUT))


def make(weights: Sequence[nn.Parameter], recipe: Recipe) -> torch.optim.Optimizer:
    """The optimizer that timm's factory makes of a list of weights."""
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
"""Over AdamW's, as their authors or timm's recipes use them; about AdamW's where nothing is said."""


def usual_rate(recipe: Recipe) -> float:
    """The rate at which a search begins, as a multiple of AdamW's."""
    return USUAL_RATES.get(suffix(recipe.optimizer), 1.0)


OPTIMIZER = Optimizer(make=make, names=names, moments=lambda recipe: 3, usual_rate=usual_rate)
