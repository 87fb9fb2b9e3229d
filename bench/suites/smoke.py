"""The whole pipeline of the main study at small size: checks an installation in under a minute."""

from __future__ import annotations

from dataclasses import replace

from bench.study.cell import Cell
from bench.study.suite import Suite, SuiteOptions, merge, task
from bench.suites._questions import OF_FAMILIES
from bench.suites._recipes import recipe_for

MODELS = ("ViT-pico/7", "R5x0.125+ViT-pico/7", "ResNet-8-s4")
UPSTREAM = "fashion-mnist"
HORIZONS = (0, 512, 1024)
SIZES = (100, 1_000)
TASKS = tuple(task("fewshot", data, shots=(1, 10), draws=2, test_limit=500) for data in ("fashion-mnist", "digits"))


def cells(options: SuiteOptions) -> list[Cell]:
    """Return cells for models × two budgets × two numbers of images × upstream sets × seeds, and one for raw pixels.
    The suite's own models are one of each of three families."""
    data, sizes = options.data or (UPSTREAM,), options.sizes or SIZES
    made = []
    for seed in range(options.seeds or 1):
        for upstream in data:
            for model in options.models or MODELS:
                base = Cell(
                    model=model,
                    data=upstream,
                    recipe=recipe_for(model, warmup_images=128),
                    horizons=HORIZONS,
                    seed=seed,
                    tasks=TASKS,
                )
                made += [replace(base, num_images=size, axes=("data_size",)) for size in sizes]
                made.append(replace(base, num_images=max(sizes), axes=("compute",)))
    made.append(Cell(model="pixels", data=data[0], num_images=max(sizes), tasks=TASKS, axes=("compute", "data_size")))
    return merge(made)


SUITE = Suite(
    name="smoke",
    question="does the whole pipeline work here? (the numbers mean nothing)",
    figures=("frontier", "compute", "data-size"),
    questions=OF_FAMILIES,
    headline=("fashion-mnist",),
    far=("digits",),
    purpose="check",  # of the pipeline: its numbers mean nothing
    takes="a minute",
    cells=cells,
)
