"""Which of a recipe's numbers an optimizer of another library takes."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from bench.study.cell import Recipe

if TYPE_CHECKING:
    from torch import nn
    from torch.optim import Optimizer


def betas_of(made: type[Optimizer], recipe: Recipe) -> dict[str, Any]:
    """The recipe's betas for an optimizer that has two, so that it differs from AdamW in its rule alone. Others keep
    their library's (Adan has three, Adafactor none)."""
    parameter = inspect.signature(made).parameters.get("betas")
    has_two = parameter is not None and isinstance(parameter.default, tuple) and len(parameter.default) == 2
    return {"betas": recipe.betas} if has_two else {}


def one_group(weights: Sequence[nn.Parameter]) -> list[nn.Parameter]:
    """All weights alike: weight decay is on every parameter, biases and norms too, as in the paper. A library that is
    given a network instead would spare these."""
    return list(weights)
