"""What is the best learning rate of each model, at a short and at a long budget? It is chosen without any test image.

Every learning rate is trained with several seeds up to the model's longest budget in the main study, or twice that, and
cools down at an eighth of it too: both budgets share one training, and so a warm-up. Accuracy is measured on a part of
the training images that no cell of this suite trains on (`Cell.held_out`). The report fits a smooth curve through the
runs (`bench/analysis/lr_sweep.py`) and prints the lines for `_recipes.py`. With `--sweep lr=1e-3,2e-3,4e-3` any other
suite chooses in the same way, but on the upstream test images.
"""

from __future__ import annotations

from dataclasses import replace

from bench.study.cell import Cell
from bench.study.suite import Suite, SuiteOptions, merge, pick
from bench.suites._grid import Grid
from bench.suites._recipes import recipe_for
from bench.suites._scales import grids
from bench.train.schedule import WARMUP_PART, total_steps

RATES = {
    "cpu": tuple(2.5e-4 * 2**step for step in range(8)),
    "gpu": tuple(1e-4 * 2**step for step in range(7)),
}
"""Scale -> learning rates that are tried, each twice the one before. They leave room on both sides of the rates that
`_recipes.py` has or derives."""
SEEDS = 3
SHORT = 8  # the long budget divided by the short one


def cells(options: SuiteOptions) -> list[Cell]:
    """Return cells for models × learning rates × upstream sets × seeds, each evaluated at two budgets."""
    rates, grid = pick("rates", options.scale, RATES), grids(options)[0][0]
    made = []
    for seed in range(options.seeds or SEEDS):
        for data in options.data or (grid.compute_data,):
            for model in options.models or dict.fromkeys((*grid.compute, *grid.swept)):
                recipe = recipe_for(model, **grid.recipe(data))
                cell = Cell(
                    model=model,
                    data=data,
                    image_size=grid.image_size,
                    channels=grid.channels,
                    horizons=budgets(grid, model, warmup_images=recipe.warmup_images, batch=recipe.batch),
                    seed=seed,
                    axes=("compute",),
                    held_out=True,
                )
                made += [replace(cell, recipe=replace(recipe, lr=rate)) for rate in rates]
    return merge(made)


def budgets(grid: Grid, model: str, *, warmup_images: int, batch: int) -> tuple[int, ...]:
    """Return a short and a long budget in images seen.

    The long budget is the longest at which the grid sweeps or trains the model; for a model that is not in the grid,
    that of the median model. The short budget is 1 / `SHORT` of it, or four warm-ups if these are longer; it is left
    out if it is not shorter than the long one.

    Args:
        warmup_images: images of the warm-up.
        batch: images per step.
    """
    usual = sorted(grid.compute.values())[len(grid.compute) // 2]
    longest = grid.swept.get(model) or grid.compute.get(model, usual)[-1]
    shortest = batch * max(total_steps(longest // SHORT, batch), WARMUP_PART * total_steps(warmup_images, batch))
    return (shortest, longest) if shortest < longest else (longest,)


SUITE = Suite(
    name="rates",
    question="which learning rate does each model train best with at a short and a long budget, by accuracy on a part "
    "of the training images that is held out?",
    figures=("learning-rates",),
    varies={"compute": ("lr",)},
    takes="two hours",
    cells=cells,
)
