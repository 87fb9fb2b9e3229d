"""The grid of the scaling and data suites: models, data and evaluation at each scale.

cpu: minutes on two cores, both axes on rendered glyphs; the suite `data` asks the data-size question of photographs
(Fashion-MNIST) instead. gpu: the same questions with larger models and budgets, about an hour on one data-centre GPU.
paper: the paper's own grid (Tables 3 and 6, Figure 4), to be costed here and run where the data are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from baselines import published
from bench.core import registry
from bench.core.spec import Cell, Recipe, TaskSpec
from bench.data.public import SIZES
from bench.suites._contract import SuiteOptions, task
from bench.suites._paper import as_published
from bench.suites._recipes import recipe_for


@dataclass(frozen=True, kw_only=True)
class Grid:
    """One scale of a study.

    Attributes:
        compute: model -> horizons in images seen, on all images of `compute_data`: the paper's Figure 5.
        size_models: model -> horizon; each trained on the nested subsets `sizes` of `size_data`: its Figure 4. Where
            the horizon is one of the model's budgets on the compute axis, that cell is the largest size for both.
        tasks: evaluation of every horizon.
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
    return tuple(task("fewshot", name, **options) for name in names)


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


# -- the three scales --------------------------------------------------------------------------------------------------

DOWNSTREAM = ("scripts", "mnist", "fashion-mnist", "digits")
JFT = SIZES["jft-300m"][0]  # images of one epoch

CPU = Grid(
    compute_data="glyphs",
    compute={
        "ViT-pico/14": budgets(64_000, 5),
        "ViT-nano/14": budgets(48_000, 4),
        "ViT-micro/14": budgets(32_000, 4),
        "ViT-pico/7": budgets(32_000, 3),
        "R5+ViT-pico/14": budgets(24_000, 4),
        "R5+ViT-nano/14": budgets(16_000, 3),
        "R8x0.125-s2": budgets(24_000, 3),
        "R8x0.25-s2": budgets(24_000, 3),
        "R11x0.25-s2": budgets(20_000, 3),
    },
    size_data="glyphs",
    size_models={"ViT-pico/14": 32_000, "R5+ViT-pico/14": 12_000, "R11x0.25-s2": 20_000},
    sizes=(300, 1_000, 3_000),
    tasks=fewshot(*DOWNSTREAM, shots=(1, 5, 10), draws=5, test_limit=1_000, ridge="loo"),
    seeds=2,
    image_size=28,
    channels=1,
    recipe={"batch": 32, "shift": 1},
)

GPU = Grid(
    compute_data="glyphs",
    compute={
        "ViT-Ti/4": budgets(2_000_000, 4),
        "ViT-S/4": budgets(2_000_000, 4),
        "ViT-B/4": budgets(1_000_000, 4),
        "R8+ViT-Ti/4": budgets(2_000_000, 4),
        "R8+ViT-S/4": budgets(1_000_000, 4),
        "R26x1-s2": budgets(2_000_000, 4),
        "R50x1-s2": budgets(2_000_000, 4),
        "R101x1-s2": budgets(1_000_000, 4),
    },
    size_data="glyphs",
    size_models={"ViT-S/4": 500_000, "R8+ViT-S/4": 500_000, "R50x1-s2": 500_000},
    sizes=(300, 1_000, 3_000, 10_000),
    tasks=fewshot(*DOWNSTREAM, shots=(1, 5, 10, 25), draws=5, test_limit=None),
    seeds=2,
    image_size=28,
    channels=1,
    recipe={"batch": 512, "lr": 1e-3, "warmup_images": 20_000},
)


def _table_6() -> dict[str, tuple[int, ...]]:
    """Model -> its budgets: 7 epochs of JFT-300M, 14, or both."""
    found: dict[str, tuple[int, ...]] = {}
    for line in published.table("table6"):
        model = published.model_name(line["name"])
        found[model] = (*found.get(model, ()), int(line["epochs"]) * JFT)
    return found


PAPER = Grid(
    compute_data="jft-300m",
    compute=_table_6(),
    size_data="jft-300m",
    size_models=dict.fromkeys(("ViT-b/32", "ViT-B/32", "ViT-L/32", "ViT-L/16", "R50x1", "R152x2"), 7 * JFT),
    sizes=(9_000_000, 30_000_000, 90_000_000, JFT),
    tasks=(),
    seeds=1,
    image_size=224,
    channels=3,
    trained=as_published,
)

SCALES = {"cpu": CPU, "gpu": GPU, "paper": PAPER}

# The data-size question asked of photographs: a part of Fashion-MNIST comes with the project.
PHOTOGRAPHS, NUMBERS = "fashion-mnist", (100, 300, 1_000, 3_000, 10_000)
DATA_SCALES = {
    "cpu": replace(CPU, size_data=PHOTOGRAPHS, sizes=NUMBERS),
    "gpu": replace(GPU, size_data=PHOTOGRAPHS, sizes=NUMBERS),
    "paper": PAPER,
}
