"""The grid of the scaling and data suites: its models, data and evaluation, and the cells (training runs) that follow
from them. `_scales.py` returns the grid of each scale."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from bench.data.load import data_set
from bench.study import registry
from bench.study.cell import Cell, Recipe, TaskSpec
from bench.study.names import DataName
from bench.study.suite import SuiteOptions, task
from bench.suites._recipes import recipe_for


@dataclass(frozen=True, kw_only=True)
class Grid:
    """The models, data and evaluation of a study at one scale.

    Attributes:
        compute_data: upstream (pre-training) set of the compute axis.
        compute: model -> horizons (budgets in images seen) on all images of `compute_data`, as in the ViT paper's
            Figure 5.
        size_data: upstream set of the axis over numbers of images.
        size_models: model -> horizon. Each is trained on the nested subsets `sizes` of `size_data`, as in the ViT
            paper's Figure 4. If the horizon is one of the model's budgets on the compute axis, one cell serves both
            axes as the largest size.
        sizes: numbers of images in the subsets, ascending; None: all of the set.
        tasks: evaluation of every horizon.
        seeds: number of seeds.
        image_size: pixels per side.
        channels: channels of the images, 1 or 3.
        swept: model -> the budget up to which the suite `rates` sweeps its learning rate, if that is not the model's
            longest in `compute`, or the model is not in `compute`.
        recipe: (upstream set) -> arguments of `recipe_for`, in which its recipe differs from the default.
        trained: (cell) -> the cell with final changes of how it is trained and evaluated.
    """

    compute_data: str
    compute: Mapping[str, tuple[int, ...]]
    size_data: str
    size_models: Mapping[str, int]
    sizes: tuple[int | None, ...]
    tasks: tuple[TaskSpec, ...]
    seeds: int
    image_size: int
    channels: int
    swept: Mapping[str, int] = field(default_factory=dict)
    recipe: Callable[[str], Mapping[str, Any]] = lambda data: {}
    trained: Callable[[Cell], Cell] = lambda cell: cell


def fewshot(*names: str, **options: Any) -> tuple[TaskSpec, ...]:
    """Return the few-shot probe on each of several downstream sets. `options`: options of the probe."""
    return tuple(task("fewshot", name, **options) for name in names)


def budgets(largest: int, count: int) -> tuple[int, ...]:
    """Return horizons in images seen: 0, the untrained network, and `count` budgets up to `largest`, each twice the one
    before it."""
    return (0, *(largest >> k for k in range(count - 1, -1, -1)))


def compute_cells(grid: Grid, options: SuiteOptions) -> list[Cell]:
    """Return the cells of the compute axis: every model at its budgets, on all upstream (pre-training) images. A model
    that is not in the grid gets the budgets of the median model."""
    usual = sorted(grid.compute.values())[len(grid.compute) // 2]
    return [
        _cell(
            grid,
            model,
            seed=seed,
            data=data,
            horizons=grid.compute.get(model, usual),
            axes=("compute", "data_size") if data == grid.size_data and model in grid.size_models else ("compute",),
        )
        for seed in range(options.seeds or grid.seeds)
        for data in options.data or (grid.compute_data,)
        for model in options.models or grid.compute
    ]


def size_cells(grid: Grid, options: SuiteOptions, *, untrained: bool) -> list[Cell]:
    """Return the cells of the axis over numbers of images: each of its models on every nested subset, for the same
    number of steps whatever the size of the subset.

    Args:
        untrained: whether to evaluate the untrained network too. It is evaluated once for each model, as it does not
            depend on the number of images.
    """
    usual, sizes = sorted(grid.size_models.values())[len(grid.size_models) // 2], options.sizes or grid.sizes
    return [
        _cell(
            grid,
            model,
            seed=seed,
            data=data,
            num_images=size,
            axes=("data_size",),
            horizons=(*((0,) if untrained and size == sizes[-1] else ()), grid.size_models.get(model, usual)),
        )
        for seed in range(options.seeds or grid.seeds)
        for data in options.data or (grid.size_data,)
        for model in options.models or grid.size_models
        for size in sizes
    ]


def pixel_cells(grid: Grid, options: SuiteOptions) -> list[Cell]:
    """Return the cell of the raw-pixel baseline, a probe on pixels instead of features; [] if there are no tasks. It is
    one cell, because the baseline has no seed and sees no upstream images."""
    if not grid.tasks:
        return []
    base = _cell(grid, "pixels", data=(options.data or (grid.compute_data,))[0], axes=("compute", "data_size"))
    return [replace(base, recipe=Recipe())]


def here(names: tuple[str, ...], options: SuiteOptions) -> tuple[str, ...]:
    """Return the downstream sets that are on this machine; at scale `paper` return all, because its cost is estimated
    before the sets are fetched."""
    known = [name for name in names if DataName.parse(name).base in registry.names("data set")]
    if options.scale == "paper":
        return tuple(known)
    return tuple(name for name in known if data_set(name).available(options.data_root))


def _cell(grid: Grid, model: str, *, data: str, **fields: Any) -> Cell:
    base = Cell(
        model=model,
        data=data,
        image_size=grid.image_size,
        channels=grid.channels,
        recipe=recipe_for(model, **grid.recipe(data)),
        tasks=grid.tasks,
        **fields,
    )
    return grid.trained(base)


# Downstream sets of the scale `gpu`: public photographs, used where they are here, and sets that come in packages.
PHOTOGRAPHIC = ("pets", "flowers102", "dtd", "caltech101", "cifar100", "cifar10", "eurosat", "photo-tiles:56px")
FAR_FROM_PHOTOGRAPHS = ("specimen-tiles:56px", "terrain", "fashion-mnist", "digits")
GPU_DOWNSTREAM = (*PHOTOGRAPHIC, *FAR_FROM_PHOTOGRAPHS)
