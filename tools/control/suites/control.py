"""Would somebody else's network stand better for a family than the one that the main study has?

For every family of the main study, at scale `cpu`, networks of the same kind that nobody of this project designed:
timm's own tiny test networks and its smallest ResNet, vit-pytorch's small ViT, compact and convolutional transformers.
They and the main study's networks are trained by the same recipe at the same budgets, each at several learning rates;
every network counts at each budget with its best rate. Those of other hands were chosen in November 2026, before any of
them was trained here, by cost: whatever of the kind these libraries have that sees at least 80 batches within the
largest budget.

    python -m bench.run --suite control --plugins tools/control
"""

from __future__ import annotations

from dataclasses import replace

from bench.study.cell import Cell
from bench.study.suite import Suite, SuiteOptions, pick
from bench.suites._cpu_grid import BATCH, CPU, LADDER, TRAIN_FLOPS
from bench.suites._recipes import recipe_for
from tools.control.kinds import OUTSIDE

FEWEST_STEPS = 80  # of a budget
OURS = {
    "ViT-atto/7": 6,
    "ViT-femto/7": 8,
    "ViT-pico-2/7": 8,
    "ResNet-8x0.5-s4+ViT-atto/8": 6,
    "ResNet-8x0.5-s4+ViT-femto/8": 7,
    "ResNet-8-s4+ViT-pico-2/8": 8,
    "ResNet-8x0.5-s4": 6,
    "ResNet-8-s4": 8,
    "ResNet-8-s2": 8,
    "R11x0.25": 6,
}
"""Network of the main study -> how far up the ladder it is trained."""
RATES = (5e-4, 1e-3, 2e-3, 4e-3, 8e-3, 1.6e-2)


def cells(options: SuiteOptions) -> list[Cell]:
    """Every network, ours and theirs, at every rate."""
    pick("grid", options.scale, {"cpu": None})
    costs = {
        **{model: flops for of_kind in OUTSIDE.values() for model, flops in of_kind.items()},
        **{model: TRAIN_FLOPS[model] for model in OURS},
    }
    made = []
    for seed in range(options.seeds or 1):
        for model in options.models or costs:
            budgets = LADDER[1 : OURS.get(model)]
            seen = (BATCH * round(flops / costs[model] / BATCH) for flops in budgets)
            horizons = tuple(images for images in seen if images >= FEWEST_STEPS * BATCH)
            base = Cell(
                model=model,
                data=CPU.compute_data,
                image_size=CPU.image_size,
                channels=CPU.channels,
                horizons=horizons,
                recipe=recipe_for(model, **CPU.recipe(CPU.compute_data)),
                seed=seed,
                axes=("compute",),
            )
            made += [replace(base, recipe=replace(base.recipe, lr=rate)) for rate in RATES]
    return made


SUITE = Suite(
    name="control",
    title="stands-for-its-family",
    question="is a network of timm or vit-pytorch better than the main study's own of its kind?",
    figures=("ours-and-theirs",),
    questions=("stands-for-its-family", "ahead-at-own-rates"),
    headline=("upstream",),
    varies={"compute": ("lr",)},
    cells=cells,
)
