"""Does a change survive scale? A baseline is trained at several budgets (and sizes), and so is the baseline with each
`--change`.

The rungs of the ladder are the combinations of the baseline's sizes and budgets; the pass `changes` adds every change
on each rung, at equal training compute, images or time, with the same seeds and order of images. The learning rates of
the baseline and of every change are tuned alike: with as many trials on the lowest and the highest rung, judged on
images that are held out, and interpolated between these rungs. Only then are the rungs trained: run the command again,
or use `vit-bench ladder`, which does so.
"""

from __future__ import annotations

from bench.study.cell import Cell
from bench.study.suite import Suite, SuiteOptions
from bench.suites._gpu_grid import gpu_models
from bench.suites._recipes import recipe_for
from bench.suites._scales import grids

BASELINES = {"cpu": "ViT-femto/7", "paper": "ViT-B/32"}
BUDGETS = {"cpu": (16_000, 64_000, 256_000), "gpu": (500_000, 2_000_000, 8_000_000)}  # images, a factor of 16
SEEDS = 4


def budgets_at(scale: str) -> tuple[int, ...]:
    """Return the usual budgets of a ladder at a scale, in images seen."""
    return BUDGETS.get(scale, BUDGETS["gpu"])


def cells(options: SuiteOptions) -> list[Cell]:
    """Return the cells of the baseline at every budget; the pass `changes` adds the changes."""
    grid = grids(options)[0][0]
    usual = BASELINES.get(options.scale) or gpu_models(options)[0]
    return [
        Cell(
            model=model,
            data=data,
            image_size=options.image_size or grid.image_size,
            channels=grid.channels,
            horizons=budgets_at(options.scale),
            seed=seed,
            recipe=recipe_for(model, **{"scale": options.scale, **grid.recipe(data)}),
        )
        for data in (options.data or (grid.compute_data,))[:1]
        for model in options.models or (usual,)
        for seed in range(options.seeds or SEEDS)
    ]


SUITE = Suite(
    name="ladder",
    question="does the gain of a change grow, keep, fade or reverse with compute, and what would it be further up?",
    cells=cells,
    figures=("ladder",),
    questions=("change-survives-scale",),
    title="change-survives-scale",
    headline=("upstream",),
    compares_changes=True,
)
