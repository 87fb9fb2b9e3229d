"""What is the best learning rate of each family? Chosen on the upstream set's test images, without downstream scores.

Its report chooses a rate (`bench/analysis/lr_sweep.py`) and prints the lines for `_recipes.py`; the results behind them
are in results/reference/rates-cpu/. With `--sweep lr=1e-3,2e-3,4e-3` any other suite chooses in the same way.
"""

from __future__ import annotations

from dataclasses import replace

from bench.core.spec import Cell
from bench.suites._recipes import recipe_for
from bench.suites._scales import grids
from bench.suites.suite import Suite, SuiteOptions, merge, pick

RATES = (1e-3, 2e-3, 4e-3, 8e-3, 1.6e-2, 3.2e-2)
IMAGES = {"cpu": 16_000, "gpu": 250_000}


def cells(options: SuiteOptions) -> list[Cell]:
    """Models × rates at one short budget, with the warm-up of the main study."""
    grid = grids(options)[0][0]
    horizon = pick("budget", options.scale, IMAGES)
    made = [
        Cell(
            model=model,
            data=data,
            image_size=grid.image_size,
            channels=grid.channels,
            horizons=(horizon,),
            recipe=replace(recipe_for(model, **grid.recipe(data)), lr=rate),
            seed=seed,
            axes=("compute",),
        )
        for seed in range(options.seeds or 1)
        for data in options.data or (grid.compute_data,)
        for model in options.models or grid.compute
        for rate in RATES
    ]
    return merge(made)


SUITE = Suite(
    name="rates",
    question="which learning rate does each family train best with, by accuracy on the upstream set's test images?",
    figures=("learning-rates",),
    varies={"compute": ("lr",)},
    cells=cells,
)
