"""The class of a schedule that a recipe can name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from bench.study.cell import Recipe
from bench.train.parts import Part


@dataclass(frozen=True, kw_only=True)
class Schedule(Part):
    """A schedule of the learning rate. A file in this folder exports one as `SCHEDULE`.

    Attributes:
        shares_trunk: whether all budgets cool down from one shared training; otherwise each is trained on its own.
        factor: (recipe, steps done since the warm-up, steps from the end of the warm-up to the end of the budget) ->
            learning rate as a multiple of its peak. None: the recipe's decay, cool-down and cool-down shape determine
            it.
    """

    shares_trunk: bool = False
    factor: Callable[[Recipe, int, int], float] | None = None
