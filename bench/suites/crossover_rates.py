"""The sweep behind the learning rates of `crossover`: its larger models at an eighth of the largest budget, without a
downstream set.

Rates are chosen by accuracy on the test images of the upstream set, as in `rates`.
"""

from __future__ import annotations

from dataclasses import replace

from bench.core.spec import Cell
from bench.suites._recipes import recipe_for
from bench.suites.crossover import DATA, RATES, RECIPE, images
from bench.suites.suite import Suite, SuiteOptions, merge, pick

TRIED = (2e-3, 4e-3, 8e-3, 1.6e-2)
BUDGET_DIVISOR = 8  # of the largest budget


def cells(options: SuiteOptions) -> list[Cell]:
    """Models × rates at one budget, the same for all in FLOPs."""
    pick("sweep", options.scale, {"cpu": None})
    return merge(
        Cell(
            model=model,
            data=data,
            horizons=(images(model, BUDGET_DIVISOR),),
            seed=seed,
            axes=("compute",),
            recipe=replace(recipe_for(model, **RECIPE), lr=rate),
        )
        for seed in range(options.seeds or 1)
        for data in options.data or (DATA,)
        for model in options.models or RATES
        for rate in TRIED
    )


SUITE = Suite(
    name="crossover-rates",
    question="which learning rate does each model of the suite crossover train best with?",
    figures=("learning-rates",),
    varies={"compute": ("lr",)},
    cells=cells,
)
