"""What do cool-down branches cost in accuracy, and what do they save? The same budgets are reached in three ways.

- branch: one training at constant learning rate, the trunk, from which each budget branches off, cooling the learning
  rate down to zero;
- separate: each budget trained on its own, with the same shape of the learning rate;
- cosine: each budget trained on its own, with cosine decay over the whole training, the usual practice.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bench.study.cell import Cell
from bench.study.suite import Suite, SuiteOptions, merge, pick, task
from bench.suites._cpu_grid import DATA, TRANSFER, recipe
from bench.suites._gpu_grid import gpu_models, gpu_recipe, gpu_size, gpu_upstream
from bench.suites._grid import (
    FAR_FROM_PHOTOGRAPHS,
    GPU_DOWNSTREAM,
    PHOTOGRAPHIC,
    budgets,
    here,
)
from bench.suites._recipes import recipe_for

WAYS: dict[str, dict[str, Any]] = {
    "branch": {},
    "separate": {"schedule": "separate"},
    "cosine": {"schedule": "separate", "cooldown": 1.0, "cooldown_shape": "cosine"},
}


@dataclass(frozen=True, kw_only=True)
class BranchingScale:
    """The suite at one scale.

    Attributes:
        models: model -> budgets in images seen.
        recipe: (upstream set) -> arguments of `recipe_for`, in which its recipe differs from the default.
        probe: options of the few-shot probe.
        data: name of the upstream (pre-training) set.
        downstream: names of the downstream sets.
        image_size: pixels per side.
        channels: channels of the images, 1 or 3.
    """

    models: dict[str, tuple[int, ...]]
    recipe: Callable[[str], dict[str, Any]]
    probe: dict[str, Any]
    data: str = DATA
    downstream: tuple[str, ...] = (TRANSFER,)
    image_size: int = 28
    channels: int = 1


CPU = BranchingScale(
    models={
        "ViT-pico/7": budgets(32_000, 5)[1:],
        "R5x0.125+ViT-pico/7": budgets(12_000, 3)[1:],
        "ResNet-8-s4": budgets(32_000, 5)[1:],
    },
    recipe=lambda data: recipe(data) | {"warmup_images": 15 * 32},  # a quarter of the shortest budget
    probe={"shots": (10,), "draws": 3, "test_limit": 500},
)


def _gpu(options: SuiteOptions) -> BranchingScale:
    models, upstream = gpu_models(options), gpu_upstream(options)
    return BranchingScale(
        models={
            models[1]: budgets(1_000_000, 5)[1:],
            models[3]: budgets(1_000_000, 3)[1:],
            models[5]: budgets(1_000_000, 3)[1:],
        },
        recipe=gpu_recipe,
        probe={"shots": (10,), "draws": 5},
        data=upstream,
        downstream=here(GPU_DOWNSTREAM, options),
        image_size=gpu_size(options),
        channels=3,
    )


def cells(options: SuiteOptions) -> list[Cell]:
    """Return cells for models × three ways of training × upstream sets × seeds; the scale's own models are one of each
    of three families. A model that is not one of them gets three budgets."""
    scale = pick("grid", options.scale, {"cpu": lambda: CPU, "gpu": lambda: _gpu(options)})()
    usual = min(scale.models.values(), key=len)
    return merge(
        Cell(
            model=model,
            data=data,
            image_size=scale.image_size,
            channels=scale.channels,
            seed=seed,
            horizons=scale.models.get(model, usual),
            recipe=recipe_for(model, **scale.recipe(data), **change),
            tasks=tuple(task("fewshot", name, **scale.probe) for name in scale.downstream),
            axes=("compute", "branching") if way == "branch" else ("branching",),
        )
        for seed in range(options.seeds or 3)
        for data in options.data or (scale.data,)
        for model in options.models or scale.models
        for way, change in WAYS.items()
    )


SUITE = Suite(
    name="branching",
    question="what do cool-down branches cost in accuracy, and how much training do they save?",
    figures=("branching",),
    headline=("upstream", *PHOTOGRAPHIC),
    far=(TRANSFER, *FAR_FROM_PHOTOGRAPHS),
    downstream={"cpu": (TRANSFER,), "gpu": GPU_DOWNSTREAM},
    varies={"branching": ("schedule", "cooldown", "cooldown_shape")},
    cells=cells,
)
