"""At which learning rates do the networks of `photographs` train best? Chosen without any test image, as by `rates`.

The main study's networks have their rates from the suite `rates`, at its budgets; the larger ones of `photographs` get
theirs here, at the shortest budget of that study which they have and at four times as much. Five rates, a factor of two
apart, have the rate of the family in the main study within them.

    python -m bench.run --suite photograph-rates --plugins tools/control
"""

from __future__ import annotations

from dataclasses import replace

from bench.study.cell import Cell
from bench.study.suite import Suite, SuiteOptions, pick
from bench.suites._cpu_grid import LADDER, images
from bench.suites._recipes import recipe_for
from bench.suites.photographs import GRID

SEEDS = 3
BUDGETS = (LADDER[-1], 4 * LADDER[-1])  # FLOPs
RATES = {
    "ViT-Lite-2/4": (2.5e-4, 5e-4, 1e-3, 2e-3, 4e-3),
    "ViT-Lite-4/4": (2.5e-4, 5e-4, 1e-3, 2e-3, 4e-3),
    "ResNet-20-s2+ViT-nano/8": (5e-4, 1e-3, 2e-3, 4e-3, 8e-3),
    "CCT-2/3x2": (5e-4, 1e-3, 2e-3, 4e-3, 8e-3),
    "ResNet-20-s2": (1e-3, 2e-3, 4e-3, 8e-3, 1.6e-2),
    "ResNet-20": (1e-3, 2e-3, 4e-3, 8e-3, 1.6e-2),
    "R11x0.5": (1e-3, 2e-3, 4e-3, 8e-3, 1.6e-2),
}
"""Model -> rates. Named on 2026-11-28, before one of these networks was trained on all photographs."""


def cells(options: SuiteOptions) -> list[Cell]:
    """Models × rates × seeds, each read at two budgets."""
    pick("grid", options.scale, {"cpu": None})
    made = []
    for seed in range(options.seeds or SEEDS):
        for model in options.models or RATES:
            recipe = recipe_for(model, **GRID.recipe(GRID.compute_data))
            cell = Cell(
                model=model,
                data=GRID.compute_data,
                image_size=GRID.image_size,
                channels=GRID.channels,
                horizons=tuple(images(model, flops) for flops in BUDGETS),
                seed=seed,
                axes=("compute",),
                held_out=True,
            )
            made += [replace(cell, recipe=replace(recipe, lr=rate)) for rate in RATES[model]]
    return made


SUITE = Suite(
    name="photograph-rates",
    question="which learning rate does each larger network of `photographs` train best with at a short and a long "
    "budget, by accuracy on a part of the training images that is held out?",
    figures=("learning-rates",),
    varies={"compute": ("lr",)},
    takes="two hours",
    cells=cells,
)
