"""How fast are inference and training at each input size? The ViT paper's Figure 12 on the machine at hand. Speed alone
is measured; no network is trained for its accuracy."""

from __future__ import annotations

from bench.study.cell import Cell, Recipe
from bench.study.suite import Suite, SuiteOptions, fitting, pick

DATA = "noise"
MODELS = {
    "cpu": ("ViT-Ti/16", "ViT-S/32", "ViT-S/16", "R26+ViT-S/32", "R50x1"),
    "gpu": ("R50x1", "R50x2", "ViT-B/32", "ViT-L/32", "ViT-B/16", "ViT-L/16", "ViT-H/14", "R152x4", "R50+ViT-B/16"),
    "paper": ("R50x1", "R50x2", "ViT-B/32", "ViT-L/32", "ViT-B/16", "ViT-L/16", "ViT-H/14", "R152x4"),
}
SIZES = {"cpu": (64, 128, 224), "gpu": (64, 128, 224, 384, 512), "paper": (64, 128, 224, 384, 512)}
ROUNDS = {"cpu": 2, "gpu": 2, "paper": 3}
TRAIN_BATCH = {"cpu": 4, "gpu": 256, "paper": 256}


def cells(options: SuiteOptions) -> list[Cell]:
    """Return cells for models × input sizes × rounds. A round (one per seed) visits every model at every size, so that
    the rounds of one model lie far apart in time and a slow spell of the machine shows as spread between them."""
    models = options.models or pick("models", options.scale, MODELS)
    recipe = Recipe(batch=pick("training batch", options.scale, TRAIN_BATCH))
    return [
        Cell(
            model=model,
            data=DATA,
            image_size=fitting(model, size),
            channels=3,
            recipe=recipe,
            seed=number,
            job="speed",
            axes=("speed",),
        )
        for number in range(options.seeds or ROUNDS[options.scale])
        for size in pick("input sizes", options.scale, SIZES)
        for model in models
    ]


SUITE = Suite(
    name="speed",
    question="how fast is each model, and how large a batch fits, at each input size?",
    figures=("throughput",),
    exclusive=True,  # one worker with all cores: a neighbour would be measured too
    cells=cells,
)
