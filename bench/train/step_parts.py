"""The parts of a training step that may be replaced, for whoever replaces them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from torch import Tensor, nn

from bench.study.cell import Recipe
from bench.train.precision import Working
from bench.train.update import Update


class Wrapped(Protocol):
    """What is replaced of a `bench.train.step.Step`, and what says how."""

    model: nn.Module
    recipe: Recipe
    device: str
    dtype: str
    working: Working
    rule: Update
    both_ways: Callable[..., Tensor]
    update: Callable[[], None]
