"""The grid of the scaling and data suites: models, data and evaluation at each scale.

cpu: minutes on two cores, both axes on rendered glyphs; the suite `data` asks the data-size question of photographs
(Fashion-MNIST) instead. gpu: the same questions of colour photographs, or of a million drawings where there are none;
`bench.plan.passes.hours` fits the budgets to the hours there are.
paper: the paper's own grid (Tables 3 and 6, Figure 4), to be costed here and run where the data are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from baselines import published
from bench.core import registry
from bench.core.spec import Cell, Recipe, TaskSpec
from bench.data.load import data_set, look, named_at, resizes
from bench.data.public_names import UPSTREAM_IMAGES
from bench.suites import _paper
from bench.suites._paper import IMAGES, as_published
from bench.suites._recipes import recipe_for
from bench.suites.suite import SuiteOptions, patched, pick, task


@dataclass(frozen=True, kw_only=True)
class Grid:
    """One scale of a study.

    Attributes:
        compute: model -> horizons in images seen, on all images of `compute_data`: the paper's Figure 5.
        size_models: model -> horizon; each trained on the nested subsets `sizes` of `size_data`, None being all of it,
            the largest last: its Figure 4. Where the horizon is one of the model's budgets on the compute axis, that
            cell is the largest size for both.
        tasks: evaluation of every horizon.
        recipe: upstream set -> what differs from the suites' recipe, as `recipe_for` takes it.
        trained: the last word on how a cell is trained.
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
    recipe: Callable[[str], Mapping[str, Any]] = lambda data: {}
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
    """The models of the data-size axis on every nested subset, for the same number of steps whatever the size.

    Args:
        untrained: also read the untrained network, once: it does not depend on the number of images.
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
    """The raw-pixel baseline, once: it has no seed, and sees no upstream images."""
    if not grid.tasks:
        return []
    base = _cell(grid, "pixels", data=(options.data or (grid.compute_data,))[0], axes=("compute", "data_size"))
    return [replace(base, recipe=Recipe())]


def here(names: tuple[str, ...], options: SuiteOptions) -> tuple[str, ...]:
    """The downstream sets that are on this machine. At scale `paper` all: it is costed before they are fetched."""
    known = [name for name in names if name.partition(":")[0] in registry.names("data set")]
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


# -- the three scales --------------------------------------------------------------------------------------------------

GREY = ("scripts", "mnist", "fashion-mnist", "digits")  # what the scale `cpu` judges its models on
JFT = UPSTREAM_IMAGES["jft-300m"]  # images of one epoch
CPU = Grid(
    compute_data="glyphs",
    compute={
        "ViT-pico/14": budgets(116_000, 6),
        "ViT-nano/14": budgets(12_000, 2),
        "ViT-micro/14": budgets(32_000, 4),
        "ViT-pico/7": budgets(8_000, 1),
        "R5x0.125+ViT-pico/14": budgets(24_000, 4),
        "R5+ViT-pico/14": budgets(24_000, 4),
        "R5+ViT-nano/14": budgets(33_600, 4),
        "R8x0.125-s2": budgets(24_000, 4),
        "R8x0.25-s2": budgets(24_000, 3),
        "R11x0.25-s2": budgets(22_400, 3),
    },
    # A factor of 32 and more of compute in every family. `bench.plan --budget` left larger budgets of ViT-nano/14 and
    # ViT-pico/7 out first: they narrow no interval of the answer for their time.
    size_data="glyphs",
    size_models={"ViT-pico/14": 116_000, "R5+ViT-pico/14": 24_000, "R11x0.25-s2": 11_200},  # 263 GFLOPs each
    sizes=(300, 1_000, 3_000),
    tasks=fewshot(*GREY, shots=(1, 5, 10), draws=5, test_limit=1_000, ridge="loo"),
    seeds=2,
    image_size=28,
    channels=1,
    recipe=lambda data: {"batch": 32, "shift": 1},
)

# Sets that networks of the scale `gpu` are judged on: public photographs that are here, and sets in packages.
PHOTOGRAPHIC = ("pets", "flowers102", "dtd", "caltech101", "cifar100", "cifar10", "eurosat", "photo-tiles:56px")
FAR_FROM_PHOTOGRAPHS = ("specimen-tiles:56px", "terrain", "fashion-mnist", "digits")
GPU_DOWNSTREAM = (*PHOTOGRAPHIC, *FAR_FROM_PHOTOGRAPHS)
DOWNSTREAM = {"cpu": GREY, "gpu": GPU_DOWNSTREAM}
DRAWN = "visual-atoms:1000x1000"  # a million images, where there are no photographs


def gpu_size(options: SuiteOptions) -> int:
    """Pixels per side: what the hours allow to be trained for long enough."""
    if options.image_size is not None:
        return options.image_size
    return next((side for below, side in ((4, 64), (24, 128)) if options.hours < below), 224)


def gpu_models(options: SuiteOptions) -> tuple[str, ...]:
    """Three families from small to large: 8 px patches and a small stem up to 96 px."""
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
    """The set that was named, else the largest of photographs that is here, else drawings; at the study's size."""
    if options.data:
        return options.data[0]
    from bench.data import photographs

    name = photographs.largest(options.data_root) or DRAWN
    seen = look(name, root=options.data_root)
    side = gpu_size(options)
    return named_at(name, side, 3) if resizes(name) and seen != (side, 3) else name


def gpu_recipe(upstream: str) -> dict[str, Any]:
    """Differences from the suites' recipe: crops of whatever images, and mirrored ones of photographs alone. Letters
    and digits mirrored are others or none, and what a user's own folder shows is not known."""
    flip = data_set(upstream).kind == "photographs"
    return {"scale": "gpu", "batch": 512, "warmup_images": 50_000, "shift": 0, "crop": 0.25, "flip": flip}


def _gpu(options: SuiteOptions) -> Grid:
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


def _table_6() -> dict[str, tuple[int, ...]]:
    """Model -> its budgets: 7 epochs of JFT-300M, 14, or both."""
    horizons: dict[str, tuple[int, ...]] = {}
    for line in published.table("table6"):
        model = published.model_name(line["name"])
        horizons[model] = (*horizons.get(model, ()), int(line["epochs"]) * JFT)
    return horizons


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

# The data-size question asked of photographs: a part of Fashion-MNIST comes with the project.
PHOTOGRAPHS, NUMBERS = "fashion-mnist", (100, 300, 1_000, 3_000, 10_000)
SEEN = {"ViT-pico/14": 32_000, "R5+ViT-pico/14": 12_000, "R11x0.25-s2": 20_000}  # not at equal compute


def grids(options: SuiteOptions, *, of_photographs: bool = False) -> list[tuple[Grid, SuiteOptions]]:
    """The grid of a scale for the upstream sets that were named, with the downstream sets that are here; the plan says
    which are not. At scale `paper` budgets follow the set, so that each has a grid of its own.

    Args:
        of_photographs: the data-size axis is of photographs at scale `cpu` too.
    """
    small = replace(CPU, size_data=PHOTOGRAPHS, size_models=SEEN, sizes=NUMBERS) if of_photographs else CPU
    scales = {"cpu": lambda: small, "gpu": lambda: _gpu(options), "paper": lambda: PAPER}
    grid = pick("grid", options.scale, scales)()
    present = here(tuple(task.data for task in grid.tasks), options)
    grid = replace(grid, tasks=tuple(task for task in grid.tasks if task.data in present))
    if options.scale != "paper" or not options.data:
        return [(grid, options)]
    return [(_paper_on(name, options), replace(options, data=(name,))) for name in options.data]


def _paper_on(name: str, options: SuiteOptions) -> Grid:
    """The paper's grid on another set than JFT-300M: every model for as many epochs as Table 3 gives the set, and
    subsets that are the same shares of it as those of Figure 4."""
    if _paper.upstream_of(name) == PAPER.compute_data:
        return PAPER
    images = options.num_images.get(name, IMAGES["ImageNet"])
    seen = _paper.epochs(name) * images
    parts = (float(f"{images * part / JFT:.1e}") for part in PAPER.sizes if part and images * part >= JFT > part)
    return replace(
        PAPER,
        compute_data=name,
        compute=dict.fromkeys(PAPER.compute, (seen,)),
        size_data=name,
        size_models=dict.fromkeys(PAPER.size_models, seen),
        sizes=(*map(int, parts), None),
    )
