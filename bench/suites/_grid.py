"""The grid that the scaling and data suites share: what is trained at each scale, on what, and how it is judged."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from bench.core import registry
from bench.core.spec import Cell, Recipe, TaskSpec
from bench.suites._contract import SuiteOptions
from bench.suites._recipes import recipe_for


@dataclass(frozen=True, kw_only=True)
class Grid:
    """One scale of a study.

    Attributes:
        compute: model -> horizons in images seen, on all images of `compute_data`: the paper's Figure 5.
        size_models: model -> horizon; each trained on the nested subsets `sizes` of `size_data`: its Figure 4. Where
            the horizon is one of the model's budgets on the compute axis, that cell is the largest size for both.
        tasks: how every horizon is judged.
        recipe: what differs from the suites' recipe.
        trained: the last word on how a cell is trained.
    """

    compute_data: str
    compute: Mapping[str, tuple[int, ...]]
    size_data: str
    size_models: Mapping[str, int]
    sizes: tuple[int, ...]
    tasks: tuple[TaskSpec, ...]
    seeds: int
    image_size: int
    channels: int
    recipe: Mapping[str, Any] = field(default_factory=dict)
    trained: Callable[[Cell], Cell] = lambda cell: cell


def fewshot(*names: str, **options: Any) -> tuple[TaskSpec, ...]:
    """The probe on several downstream sets."""
    return tuple(TaskSpec(task="fewshot", data=name, options=tuple(options.items())) for name in names)


def budgets(largest: int, count: int) -> tuple[int, ...]:
    """The untrained network, and `count` budgets spaced x2 up to `largest` images seen."""
    return (0, *(largest >> k for k in range(count - 1, -1, -1)))


def compute_cells(grid: Grid, options: SuiteOptions) -> list[Cell]:
    """Every model at its budgets, on all upstream images. A model the grid does not know gets the median's budgets."""
    usual = sorted(grid.compute.values())[len(grid.compute) // 2]
    return [
        _cell(
            grid, model, seed=seed, data=data, horizons=grid.compute.get(model, usual),
            axes=("compute", "data_size") if data == grid.size_data and model in grid.size_models else ("compute",),
        )
        for seed in range(options.seeds or grid.seeds)
        for data in options.data or (grid.compute_data,)
        for model in options.models or grid.compute
    ]  # fmt: skip


def size_cells(grid: Grid, options: SuiteOptions, *, untrained: bool) -> list[Cell]:
    """The models of the data-size axis on every nested subset, for the same number of steps whatever the size.

    Args:
        untrained: also read the untrained network, once: it does not depend on the number of images.
    """
    usual = sorted(grid.size_models.values())[len(grid.size_models) // 2]
    return [
        _cell(
            grid, model, seed=seed, data=data, num_images=size, axes=("data_size",),
            horizons=(*((0,) if untrained and size == max(grid.sizes) else ()), grid.size_models.get(model, usual)),
        )
        for seed in range(options.seeds or grid.seeds)
        for data in options.data or (grid.size_data,)
        for model in options.models or grid.size_models
        for size in grid.sizes
    ]  # fmt: skip


def pixel_cells(grid: Grid, options: SuiteOptions) -> list[Cell]:
    """The raw-pixel baseline, once: it has no seed, and sees no upstream images."""
    if not grid.tasks:
        return []
    base = _cell(grid, "pixels", data=(options.data or (grid.compute_data,))[0], axes=("compute", "data_size"))
    return [replace(base, recipe=Recipe())]


def on_this_machine(grid: Grid, options: SuiteOptions) -> Grid:
    """The grid without the downstream sets that are not here; the plan says which and how to get them."""
    here = {task.data: registry.load("data set", task.data).available(options.data_root) for task in grid.tasks}
    return replace(grid, tasks=tuple(task for task in grid.tasks if here[task.data]))


def _cell(grid: Grid, model: str, **fields: Any) -> Cell:
    base = Cell(
        model=model,
        image_size=grid.image_size,
        channels=grid.channels,
        recipe=recipe_for(model, **grid.recipe),
        tasks=grid.tasks,
        **fields,
    )
    return grid.trained(base)
