"""A folder of labelled photos and a choice of pre-trained models: which model, adapted how, and how many more photos?

Nothing is pre-trained here. Each model computes features of every image once, at its own size; the number of labelled
images that are used grows step by step.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from bench.data.load import stored_at
from bench.study import registry
from bench.study.cell import Cell, Recipe
from bench.study.suite import Suite, SuiteOptions, pick, task

MODELS = {  # model -> pixels per side, by timm's configurations: supervised, self-supervised, trained on captions
    "timm:convnext_nano.in12k+pretrained": 224,  # 90 MB, Apache 2.0
    "timm:vit_small_patch16_dinov3.lvd1689m+pretrained": 256,  # 86 MB, DINOv3 licence
    "timm:eva02_small_patch14_336.mim_in22k_ft_in1k+pretrained": 336,  # 89 MB, MIT
    "timm:vit_base_patch16_siglip_224.v2_webli+pretrained": 224,  # SigLIP 2, 372 MB, Apache 2.0
}
DATA = "fashion-mnist"
SIDE = 64  # pixels per side of images for models that are made for no particular size
LIMITS = {"cpu": {"train_limit": 5_000, "test_limit": 2_000}, "gpu": {}, "paper": {}}
TUNING: Mapping[str, Mapping[str, Any]] = {  # {}: the settings of the ViT paper's Table 4, by number of images
    "cpu": {"steps": 100, "batch": 32, "rates": (0.01, 0.03, 0.1)},
    "gpu": {},
    "paper": {},
}


def cells(options: SuiteOptions) -> list[Cell]:
    """Return one cell per model and data set, in which the model is evaluated as it comes. All models use the same
    stored images, each at its own size."""
    limits, tuning = (pick("limits", options.scale, table) for table in (LIMITS, TUNING))
    sides = {model: options.image_size or _side(model) for model in options.models or MODELS}
    made = []
    for name in options.data or (DATA,):
        stored = stored_at(name, max(sides.values()), 3, root=options.data_root)
        tasks = task("adapt", stored, **limits), task("finetune", stored, copies_aside=True, **limits, **tuning)
        for model, side in sides.items():
            cell = Cell(model=model, data=stored, image_size=side, channels=3, recipe=Recipe(shift=0), tasks=tasks)
            made.append(replace(cell, axes=("adapt",)))
    return made


def _side(model: str) -> int:
    return MODELS.get(model) or registry.own_image_size(model) or SIDE


SUITE = Suite(
    name="adapt",
    question="which pre-trained model is best for these photos, adapted how, and how many more photos does it take?",
    figures=("adaptation", "photos-to-check"),
    questions=("best-adaptation", "images-to-label", "fine-tuning-gain"),
    advises=True,
    compares_finetuning=True,
    downstream=(),
    cells=cells,
)
