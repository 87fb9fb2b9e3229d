"""All 60,000 photographs of Fashion-MNIST, and networks with published accuracies: hours on two cores, over days.

Compute: the budgets of the main study go on to 53 TFLOPs, for ViT-Lite and the compact transformer (CCT) of Hassani et
al. 2021, the ResNets for small images of He et al. 2016, a narrow BiT, and hybrids. Images: one network of each family
is trained with 6.7 TFLOPs on parts of 600 to 60,000 images; these networks are also fine-tuned on handwriting, which is
how the ViT paper measures transfer. The accuracy on the 10,000 test images can be compared with published ones, which
took hundreds of epochs; here a network sees each image five to twenty times. The networks and budgets were chosen in
November 2026, before any of them was trained here.
"""

from __future__ import annotations

from dataclasses import replace

from bench.study.cell import Cell
from bench.study.suite import Suite, SuiteOptions, merge, pick, task
from bench.suites._cpu_grid import LADDER, TRANSFER, horizons, images, recipe
from bench.suites._grid import Grid, compute_cells, fewshot, pixel_cells, size_cells
from bench.suites._questions import OF_FAMILIES

DATA = "fashion-mnist"
WHOLE = tuple(LADDER[0] * 2**rung for rung in range(5, 14))  # budgets in FLOPs: 208 GFLOPs, … 53 TFLOPs
RUNGS = {
    "ViT-pico-2/7": 5,
    "ViT-Lite-2/4": 9,
    "ViT-Lite-4/4": 9,
    "ResNet-8-s4+ViT-pico-2/8": 5,
    "ResNet-20-s2+ViT-nano/8": 9,
    "CCT-2/3x2": 9,
    "ResNet-8-s4": 5,
    "ResNet-20-s2": 9,
    "ResNet-20": 9,
    "R11x0.5": 7,
}
"""Model -> number of budgets of `WHOLE`, from the smallest on, at which it is trained."""
SIZE_MODELS = ("ViT-Lite-2/4", "CCT-2/3x2", "ResNet-20-s2")
SIZE_FLOPS, SIZES = WHOLE[5], (600, 2_000, 6_000, 20_000)
PROBE = fewshot(DATA, TRANSFER, shots=(10,), draws=5, test_limit=2_500, ridge="loo")
TUNED = task("finetune", TRANSFER, steps=100, batch=64, rates=(0.003, 0.01, 0.03, 0.1), held_out=0.2)

GRID = Grid(
    compute_data=DATA,
    compute={model: horizons(model, WHOLE[:rungs]) for model, rungs in RUNGS.items()},
    size_data=DATA,
    size_models={model: images(model, SIZE_FLOPS) for model in SIZE_MODELS},
    sizes=(*SIZES, None),
    tasks=PROBE,
    seeds=2,
    image_size=28,
    channels=1,
    recipe=recipe,
)


def cells(options: SuiteOptions) -> list[Cell]:
    """Return the cells of the compute axis, of the axis over numbers of images (with fine-tuning), and of raw
    pixels."""
    pick("grid", options.scale, {"cpu": None})
    tuned = replace(GRID, tasks=(*PROBE, TUNED))
    return merge(
        [*compute_cells(GRID, options), *size_cells(tuned, options, untrained=False), *pixel_cells(GRID, options)]
    )


SUITE = Suite(
    name="photographs",
    title="best-family-at-equal-compute",
    question="on all of Fashion-MNIST, who is ahead at equal compute and at equal numbers of images?",
    figures=("frontier", "gap", "data-size", "compute", "laws", "learning-curves"),
    questions=OF_FAMILIES,
    headline=("upstream",),
    far=(TRANSFER,),
    downstream=(DATA, TRANSFER),
    cells=cells,
)
