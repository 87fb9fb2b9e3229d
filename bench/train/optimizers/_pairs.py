"""Find which of a recipe's hyperparameters are passed to an optimizer of torch or timm."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from bench.study.cell import Recipe

if TYPE_CHECKING:
    from torch import nn
    from torch.optim import Optimizer


def betas_of(made: type[Optimizer], recipe: Recipe) -> dict[str, Any]:
    """Return {"betas": the recipe's betas} for a class of optimizers that takes two of them; else an empty dict.

    An optimizer with two betas then differs from AdamW in its update rule only. Others keep their library's defaults
    (Adan has three betas, Adafactor none).

    Args:
        made: the class.
    """
    parameter = inspect.signature(made).parameters.get("betas")
    has_two = parameter is not None and isinstance(parameter.default, tuple) and len(parameter.default) == 2
    return {"betas": recipe.betas} if has_two else {}


def one_group(weights: Sequence[nn.Parameter]) -> list[nn.Parameter]:
    """Return all weights as one parameter group, so that weight decay applies to every parameter, biases and norms too,
    as in the ViT paper. A library that is given the network instead would exempt biases and norms."""
    return list(weights)
