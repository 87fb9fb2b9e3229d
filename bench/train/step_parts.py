"""The interface through which `bench.train.acceleration` replaces parts of a training step by compiled or recorded
ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from torch import Tensor, nn

from bench.study.cell import Recipe
from bench.train.precision import Working
from bench.train.update import Update


class Wrapped(Protocol):
    """The attributes of a `bench.train.step.Step` that are replaced when it is compiled or recorded (`working`'s
    network and input, `both_ways`, `update`), and those that are needed to do so."""

    model: nn.Module
    recipe: Recipe
    device: str
    dtype: str
    working: Working
    rule: Update
    both_ways: Callable[..., Tensor]
    update: Callable[[], None]
