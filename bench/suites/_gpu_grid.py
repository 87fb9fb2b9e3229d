"""The grid of the scale `gpu`: the questions of the scale `cpu`, asked of colour photographs, or of a million generated
drawings if there are no photographs. `bench.plan.passes.hours` fits the budgets to the hours that the user gives."""

from __future__ import annotations

from typing import Any

from bench.data.load import data_set, look, named_at, resizes
from bench.study.suite import SuiteOptions, patched
from bench.suites._grid import GPU_DOWNSTREAM, Grid, budgets, fewshot

DRAWN = "visual-atoms:1000x1000"  # a million generated images, used if there are no photographs


def gpu_size(options: SuiteOptions) -> int:
    """Return the pixels per side of images: those of --image-size, else the largest size at which --hours allow to
    train for long enough."""
    if options.image_size is not None:
        return options.image_size
    return next((side for below, side in ((4, 64), (24, 128)) if options.hours < below), 224)


def gpu_models(options: SuiteOptions) -> tuple[str, ...]:
    """Return the names of models of three families, within each from small to large. For images up to 96 px they have
    patches of 8 px and a small stem."""
    small = gpu_size(options) <= 96
    patch, stem = (8, "-s2") if small else (16, "")
    names = (
        f"ViT-Ti/{patch}",
        f"ViT-S/{patch}",
        f"ViT-B/{patch}",
        f"R8+ViT-Ti/{patch}",
        f"R8+ViT-S/{patch}",
        f"R26x1{stem}",
        f"R50x1{stem}",
        f"R101x1{stem}",
    )
    return tuple(patched(name, gpu_size(options)) for name in names)


def gpu_upstream(options: SuiteOptions) -> str:
    """Return the name of the upstream (pre-training) set: the one that the user named, else the largest set of
    photographs that is on this machine, else drawings. The name states the study's image size where the set can be
    stored at any size."""
    if options.data:
        return options.data[0]
    from bench.data import photographs

    name = photographs.largest(options.data_root) or DRAWN
    seen = look(name, root=options.data_root)
    side = gpu_size(options)
    return named_at(name, side, 3) if resizes(name) and seen != (side, 3) else name


def gpu_recipe(upstream: str) -> dict[str, Any]:
    """Return the fields in which the recipe for an upstream set differs from the default of `recipe_for`. All images
    are cropped, but only photographs are mirrored: a mirrored letter or digit is another one or none, and what the
    images of a user's own folder show is not known."""
    flip = data_set(upstream).kind == "photographs"
    return {"scale": "gpu", "batch": 512, "warmup_images": 50_000, "shift": 0, "crop": 0.25, "flip": flip}


def grid(options: SuiteOptions) -> Grid:
    """Return the grid of the scale `gpu`: models of three families (`gpu_models`), trained on the upstream
    (pre-training) set `gpu_upstream`."""
    upstream, models = gpu_upstream(options), gpu_models(options)
    vit, hybrid, resnet = models[1], models[4], models[6]
    budget = dict(zip(models, (4, 4, 2, 4, 2, 4, 2, 1), strict=True))  # millions of images, relative to each other
    return Grid(
        compute_data=upstream,
        compute={model: budgets(millions * 1_000_000, 4) for model, millions in budget.items()},
        size_data=upstream,
        size_models={vit: 2_000_000, hybrid: 2_000_000, resnet: 2_000_000},
        sizes=(10_000, 30_000, 100_000, 300_000),
        tasks=fewshot(*GPU_DOWNSTREAM, shots=(1, 5, 10, 25), draws=5, test_limit=2_000),
        seeds=2,
        image_size=gpu_size(options),
        channels=3,
        recipe=gpu_recipe,
    )
