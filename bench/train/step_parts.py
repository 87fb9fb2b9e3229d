"""The interface through which parts of a training step are replaced (`bench.train.acceleration`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from torch import Tensor, nn

from bench.study.cell import Recipe
from bench.train.precision import Working
from bench.train.update import Update


class Wrapped(Protocol):
    """The attributes of a `bench.train.step.Step` that are replaced (`working`'s network, `both_ways`, `update`), and
    those that are needed to do so."""

    model: nn.Module
    recipe: Recipe
    device: str
    dtype: str
    working: Working
    rule: Update
    both_ways: Callable[..., Tensor]
    update: Callable[[], None]
