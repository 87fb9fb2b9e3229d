"""Training speed beside timm, vit-pytorch, Hugging Face and torchvision: same model, weights, images and batches."""

from __future__ import annotations

from bench.study.cell import Cell, Recipe
from bench.study.suite import Suite, SuiteOptions, pick

DATA, IMAGES = "fashion-mnist", 512
MODELS = {  # model -> input size, batch
    "cpu": {"ViT-Ti/4": (32, 32), "ViT-S/16": (224, 8), "R50x1": (64, 8), "R50+ViT-B/16": (64, 8)},
    "gpu": {"ViT-S/16": (224, 256), "ViT-B/16": (224, 256), "ViT-Ti/4": (32, 512), "R50x1": (224, 128)},
    "paper": {"ViT-B/16": (224, 256), "ViT-L/16": (224, 128), "ViT-H/14": (224, 64), "R50x1": (224, 128)},
}
DEFAULT_SIZE_AND_BATCH = (224, 8)  # input size and batch of models given by --models


def cells(options: SuiteOptions) -> list[Cell]:
    """One race per model, and per seed."""
    table = pick("models", options.scale, MODELS)
    wanted = {name: table.get(name, DEFAULT_SIZE_AND_BATCH) for name in options.models or table}
    return [
        Cell(
            model=name,
            data=(options.data or (DATA,))[0],
            num_images=IMAGES,
            image_size=size,
            channels=3,
            recipe=Recipe(lr=1e-4, batch=batch, betas=(0.9, 0.999), shift=0, warmup_images=0),
            model_options=_like_theirs(name),
            seed=seed,
            job="peers",
            axes=("peers",),
        )
        for seed in range(options.seeds or 1)
        for name, (size, batch) in wanted.items()
    ]


def _like_theirs(name: str) -> tuple[tuple[str, str], ...]:
    """Options that make our model the function that the libraries have: exact GELU, timm's constants in ResNets."""
    if ":" in name:  # a library's own
        return ()
    options = {"numerics": "timm"} if name.startswith("R") else {}
    return tuple((options | ({} if name.startswith("R") and "+" not in name else {"gelu": "exact"})).items())


SUITE = Suite(
    name="peers",
    question="is training faster here than in the libraries that people use?",
    figures=("peers",),
    varies={"peers": ("batch",)},  # models are timed each in the batch that fits it, never compared with each other
    exclusive=True,  # one worker with all cores: a neighbour would be measured too
    cells=cells,
)
