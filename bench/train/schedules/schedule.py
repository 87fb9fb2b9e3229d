"""A schedule as a recipe names it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from bench.study.cell import Recipe
from bench.train.parts import Part


@dataclass(frozen=True, kw_only=True)
class Schedule(Part):
    """A file in this folder exports one as `SCHEDULE`.

    Attributes:
        shares_trunk: budgets cool down from one shared training; otherwise each is trained on its own.
        factor: (recipe, steps done since the warm-up, steps from there to the budget's end) -> multiple of the peak
            rate. None: by the recipe's decay, cool-down and its shape.
    """

    shares_trunk: bool = False
    factor: Callable[[Recipe, int, int], float] | None = None
