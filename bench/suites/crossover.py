"""The paper's Figure 4 at equal compute, at home: a ViT needs more images than a ResNet; does it catch up with them?

One model of each family is trained with the same FLOPs on nested parts of 300,000 drawn images, from 300 up in steps of
half a decade, seeds repeated. On all images it goes on to as many FLOPs as the ViT needs to see each of them once; its
earlier budgets and a smaller model of the family take the compute axis two decades down. The learning rates are those
that `crossover_rates` found.
"""

from __future__ import annotations

from dataclasses import replace

from bench.core.spec import Cell, Recipe
from bench.suites._contract import SuiteOptions, merge, pick
from bench.suites._grid import fewshot
from bench.suites._recipes import recipe_for

QUESTION = "at equal compute, how many images does a ViT need to catch up with a ResNet?"
FIGURES = ("gap", "data-size", "frontier", "compute", "laws", "learning-curves")
HEADLINE, FAR = ("scripts", "mnist"), ("fashion-mnist",)

DATA = "lettering:100x3000"
PASS = {"ViT-pico/7": 300_000, "R5+ViT-pico/14": 236_000, "R11x0.25-s2": 110_000}
"""Model -> images seen for 2.6 TFLOPs of training, forward and backward: the ViT sees all of them once."""
SMALL = {"ViT-pico/14": 1_146_000, "R8x0.125-s2": 736_000}  # the same of models for the small end of the compute axis
RATES: dict[str, float] = {}
SIZES = (300, 1_000, 3_000, 10_000, 30_000, 100_000)  # and all of them
FEWER = {"R5+ViT-pico/14": (300, 3_000, 30_000)}
SEEDS = 2
RECIPE = {"batch": 32, "shift": 1}
TASKS = fewshot(*HEADLINE, *FAR, shots=(10,), draws=10, test_limit=2_500, ridge="loo")


def images(model: str, share: int) -> int:
    """Images seen for a share of the largest budget: 4 means a quarter. A model that is not here gets the hybrid's."""
    whole = {**PASS, **SMALL}.get(model, PASS["R5+ViT-pico/14"])
    return round(whole / share, -2)


def cells(options: SuiteOptions) -> list[Cell]:
    """Compute on all images, sizes at half the largest budget and at an eighth of it, and raw pixels."""
    pick("grid", options.scale, {"cpu": None})
    found = []
    for seed in range(options.seeds or SEEDS):
        for data in options.data or (DATA,):
            for model in options.models or (*PASS, *SMALL):
                small = model in SMALL
                base = Cell(
                    model=model, data=data, seed=seed, tasks=TASKS,
                    recipe=replace(recipe_for(model, **RECIPE), **({"lr": RATES[model]} if model in RATES else {})),
                )  # fmt: skip
                shares = (256, 128, 64, 32, 16, 8) if small else (64, 32, 16, 8, 4, 2, 1)
                axes = ("compute",) if small else ("compute", "data_size")
                found.append(replace(base, horizons=(0, *(images(model, share) for share in shares)), axes=axes))
                if not small:
                    budgets = tuple(images(model, share) for share in (8, 2))
                    sizes = [size for size in FEWER.get(model, SIZES) if size < budgets[-1]]  # more are never seen
                    found += [replace(base, num_images=n, horizons=budgets, axes=("data_size",)) for n in sizes]
    pixels = Cell(model="pixels", data=DATA, tasks=TASKS, recipe=Recipe(), axes=("compute", "data_size"))
    return merge([*found, pixels])
