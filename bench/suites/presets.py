"""Does the published 7,562-parameter ViT train as published? Adam, cross-entropy, 15 epochs, batch 128, constant
learning rate.

The published accuracy, about 96 %, is on all of MNIST. If only parts of data sets are installed, the network is trained
on those: the accuracy that 2,500 handwritten digits or 10,000 photographs of clothing allow is another number, and the
record says which it is.
"""

from __future__ import annotations

from bench.study.cell import Cell, Recipe
from bench.study.suite import Suite, SuiteOptions

EPOCHS = 15
RECIPE = Recipe(
    lr=5e-3, batch=128, betas=(0.9, 0.999), weight_decay=0.0, clip=0.0, warmup_images=0, cooldown=0.0, shift=0
)
PACKAGED_IMAGES = {"mnist": 2_500, "fashion-mnist": 10_000}  # training images that come with installed packages


def cells(options: SuiteOptions) -> list[Cell]:
    """Return cells for models × data sets × seeds. The suite's own model is the preset `mnist-7562`."""
    return [
        Cell(
            model=model,
            data=data,
            num_images=PACKAGED_IMAGES.get(data),
            horizons=(0, EPOCHS * PACKAGED_IMAGES.get(data, 60_000)),
            recipe=RECIPE,
            seed=seed,
            axes=("compute",),
        )
        for seed in range(options.seeds or 3)
        for data in options.data or tuple(PACKAGED_IMAGES)
        for model in options.models or ("mnist-7562",)
    ]


SUITE = Suite(
    name="presets",
    question="does the published 7,562-parameter ViT train as published?",
    cells=cells,
)
