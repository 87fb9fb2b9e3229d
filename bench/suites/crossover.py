"""The paper's Figure 4 at equal compute, at home: a ViT needs more images than a ResNet; does it catch up with them?

One model of each family is trained with the same FLOPs on nested parts of 300,000 drawn images, from 300 up in steps of
half a decade. On all images it goes on until the ViT has seen each of them once; its earlier budgets and smaller models
of the families take the compute axis two decades down. `crossover_rates` is the sweep behind the learning rates.
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
VIT, HYBRID, RESNET = "ViT-pico/7", "R5+ViT-pico/14", "R11x0.25-s2"
SEEN = {VIT: 300_000, HYBRID: 236_000, RESNET: 110_000, "ViT-pico/14": 1_146_000, "R8x0.125-s2": 736_000}
"""Model -> images seen for 2.6 TFLOPs of training, forward and backward; the ViT sees all of them once."""
RATES = {VIT: 2e-3, HYBRID: 4e-3, RESNET: 8e-3}  # of `crossover_rates`; the others' are the main study's
SIZES = {VIT: (300, 1_000, 3_000, 10_000, 30_000), HYBRID: (300, 3_000, 30_000),
         RESNET: (300, 1_000, 3_000, 10_000, 30_000)}  # fmt: skip
"""Parts of the images that a model is trained on besides all of them."""
SIZE_SHARES = (8, 2)  # of the largest budget: where the parts are read
SHARES = {VIT: (64, 32, 16, 8, 4, 2, 1), HYBRID: (64, 32, 16, 8, 4, 2), RESNET: (64, 32, 16, 8, 4, 2, 1)}
SMALL = (256, 128, 64, 32, 16, 8)  # of the smaller models
SEEDS = 2
RECIPE = {"batch": 32, "shift": 1}
TASKS = fewshot(*HEADLINE, *FAR, shots=(10,), draws=10, test_limit=2_500, ridge="loo")


def images(model: str, share: int) -> int:
    """Images seen for a share of the largest budget: 4 means a quarter. A model that is not here gets the hybrid's."""
    return int(round(SEEN.get(model, SEEN[HYBRID]) / share, -2))


def cells(options: SuiteOptions) -> list[Cell]:
    """Every model on all images, parts of them at two budgets, and raw pixels."""
    pick("grid", options.scale, {"cpu": None})
    tasks = TASKS
    found = [Cell(model="pixels", data=(options.data or (DATA,))[0], tasks=tasks, axes=("compute", "data_size"))]
    found[0] = replace(found[0], recipe=Recipe())
    for seed in range(options.seeds or SEEDS):
        for data in options.data or (DATA,):
            for model in options.models or SEEN:
                known = model not in SEEN or model in SIZES  # on both axes
                recipe = recipe_for(model, **RECIPE)
                recipe = replace(recipe, lr=RATES.get(model, recipe.lr))
                base = Cell(model=model, data=data, seed=seed, recipe=recipe, tasks=tasks)
                shares = SHARES.get(model, SHARES[HYBRID]) if known else SMALL
                axes = ("compute", "data_size") if known else ("compute",)
                whole = (0, *(images(model, share) for share in shares))
                found.append(replace(base, horizons=whole, axes=axes))
                parts = tuple(images(model, share) for share in SIZE_SHARES)
                found += [replace(base, num_images=size, horizons=parts, axes=("data_size",))
                          for size in (SIZES.get(model, SIZES[HYBRID]) if known else ())]  # fmt: skip
    return merge(found)
