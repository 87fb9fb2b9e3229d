"""What do single design choices change? The ViT paper's Tables 7 and 8 and Figures 8 and 9, and its appendix D.6.

One ViT is changed in one respect at a time, and evaluated by a few-shot probe. A variant is named after the ViT, with
the fields of `vit.config.ViTConfig` in which it differs: "ViT-pico/7:position=learned-1d:pooling=cls". The comparisons
(axes) are:

- position: which position signal, and where it is added;
- pooling: class token or mean of the patch tokens, at several learning rates;
- shape: depth, width, MLP width, patch size, and all together, against compute;
- stem: patches as they are or behind convolutions (early convolutions, Xiao et al. 2021), and axial attention;
- optimizer: a ResNet with Adam and with SGD, each at several learning rates.

At scale `paper` the variants are those of the paper's appendix: ViT-B/16 for positions (Table 8) and pooling (Figure
9), eight layers of width 1,024 for the shape (Figure 8), axial networks (Figure 13), two ResNets with Adam and with
BiT's SGD, fine-tuned too (Table 7), and the ViT-L/16 whose position embeddings Figure 10 shows; each is trained for 7
epochs of JFT-300M.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from bench.study.cell import Cell, TaskSpec
from bench.study.suite import Suite, SuiteOptions, merge, pick, task, trained_once
from bench.suites import _paper
from bench.suites._recipes import recipe_for
from vit.config import config_for

HEADLINE = ("scripts", "mnist")

POSITIONS = {  # signal -> where it is added
    "none": ("stem",),
    "learned-1d": ("stem", "every-layer", "shared"),
    "learned-2d": ("stem", "every-layer", "shared"),
    "sincos-2d": ("stem", "every-layer"),  # a fixed table, so sharing it between layers changes nothing
    "relative": ("every-layer", "shared"),
}
SGD = {"optimizer": "sgd", "weight_decay": 1e-4}  # as BiT was trained


@dataclass(frozen=True, kw_only=True)
class AblationScale:
    """The ViT that is changed at one scale, and how all variants are trained.

    Attributes:
        base: name of the ViT that is changed.
        patches: two other patch sizes in pixels, the larger first.
        conv_patch: an even patch size in pixels, for the convolutional stem.
        pooling_factors: learning rates at which both ways to pool are trained, divided by that of the ViT that is
            changed; one of them is 1.
        resnet: name of the ResNet that is trained with Adam and with SGD.
        resnet_rates: learning rates of the ResNet with Adam, and with SGD.
        images: images seen in each training.
        recipe: arguments of `recipe_for`, in which recipes differ from the default.
        tasks: evaluation of every variant.
    """

    base: str
    patches: tuple[int, int]
    conv_patch: int
    pooling_factors: tuple[float, ...]
    resnet: str
    resnet_rates: tuple[tuple[float, ...], tuple[float, ...]]
    images: int
    recipe: dict[str, Any]
    tasks: tuple[TaskSpec, ...]


SCALES = {
    "cpu": AblationScale(
        base="ViT-pico/7",
        patches=(14, 4),
        conv_patch=4,
        pooling_factors=(0.5, 1, 2, 4, 8),
        resnet="R11x0.25",
        resnet_rates=((4e-3, 8e-3, 1.6e-2), (0.1, 0.3, 0.9)),
        images=16_000,
        recipe={"batch": 32, "shift": 1},
        tasks=tuple(task("fewshot", name, shots=(5,), draws=5, test_limit=1_000, ridge="loo") for name in HEADLINE),
    ),
    "gpu": AblationScale(
        base="ViT-Ti/4",
        patches=(7, 2),
        conv_patch=4,
        pooling_factors=(0.25, 0.5, 1, 2, 4),
        resnet="R26x1-s2",
        resnet_rates=((5e-4, 1e-3, 2e-3), (0.05, 0.1, 0.2)),
        images=1_000_000,
        recipe={"scale": "gpu", "batch": 512, "warmup_images": 20_000},
        tasks=tuple(task("fewshot", name, shots=(5,), draws=5, test_limit=None) for name in HEADLINE),
    ),
}


def cells(options: SuiteOptions) -> list[Cell]:
    """Return cells for variants × upstream sets × seeds. The first of the models that the user named is the ViT that is
    changed."""
    if options.scale == "paper":
        return list(_of_paper(options))
    scale = pick("grid", options.scale, SCALES)
    base = (options.models or (scale.base,))[0]
    return merge(
        Cell(
            model=model,
            data=data,
            horizons=(scale.images,),
            seed=seed,
            tasks=scale.tasks,
            axes=(axis,),
            recipe=recipe_for(model, **{"lr": recipe_for(base, **scale.recipe).lr, **scale.recipe, **change}),
        )
        for seed in range(options.seeds or 2)
        for data in options.data or ("glyphs",)
        for axis, model, change in variants(scale, base)
    )


AVERAGED = ("imagenet", "caltech101", "cars", "cifar100", "dtd", "pets")
"""Data sets over which Figure 8 averages. The ViT paper does not name them; these are the sets of the public few-shot
evaluation that this project has."""
PAPER_SHAPES: tuple[tuple[str, dict[str, int]], ...] = (
    ("ViT-L-8/32", {}),
    *(("ViT-L-8/32", {"depth": depth}) for depth in (4, 16, 32, 64)),
    *(("ViT-L-8/32", {"width": width}) for width in (512, 2048)),
    *(("ViT-L-8/32", {"mlp_width": width}) for width in (1024, 4096, 8192)),
    *((f"ViT-L-8/{patch}", {}) for patch in (56, 16)),
    ("ViT-L-8/56", {"depth": 4, "width": 512, "mlp_width": 1024}),
    ("ViT-L-8/16", {"depth": 16, "width": 2048, "mlp_width": 4096}),
)
"""The networks of Figure 8, as (model, changed fields). The ViT paper names the one in the middle, and 64 layers as the
most; the others are chosen here."""
READINGS = 7
"""Number of evaluations of a training in Figure 9: one after each epoch of JFT-300M."""
LOWER = {"lr_factor": 3 / 8}  # Figure 9 has 3e-4 and 8e-4, both for mean pooling only; here for both ways


def _of_paper(options: SuiteOptions) -> Iterator[Cell]:
    """Yield cells for the networks of the ViT paper's appendix × upstream (pre-training) sets × seeds, every training
    once."""
    base = (options.models or ("ViT-B/16",))[0]
    row = config_for(base, image_size=224, channels=3, num_classes=0)
    made: list[tuple[str, str, Mapping[str, Any], tuple[TaskSpec, ...]]] = []  # axis, model, changes of recipe, tasks
    probed = _paper.probed()
    for position, places in POSITIONS.items():
        if position == "sincos-2d":  # Table 8 does not have it
            continue
        for place in places[:1] if position == "relative" else places:
            made.append(("position", named(base, row, position=position, position_at=place), {}, probed))
    for pooling in ("cls", "mean"):
        made += [("pooling", named(base, row, pooling=pooling), change, probed) for change in ({}, LOWER)]
    for model, changes in PAPER_SHAPES:
        name = ":".join([model, *(f"{key}={value}" for key, value in changes.items())])
        made.append(("shape", name, {}, _paper.probed(AVERAGED)))
    stem = (base, f"Axial{base}", "ViT-B/32", "AxialViT-B/32", "R50x1", "AxialR50x1")
    made += [("stem", model, {}, probed) for model in stem]
    for model in ("R50x1", "R152x2"):
        made += [("optimizer", model, change, (*_paper.tuned(model), *probed)) for change in ({}, _paper.BIT_SGD)]
    made += [("recipe", "ViT-L/16", change, probed) for change in ({}, {"lr_factor": 1 / 2, "weight_decay": 0.01})]
    cells = [
        _changed(
            Cell(
                model=model,
                data=data,
                image_size=224,
                channels=3,
                horizons=_lengths(model, change, data, options),
                seed=seed,
                tasks=tasks,
                axes=(axis,),
            ),
            change,
        )
        for seed in range(options.seeds or 1)
        for data in options.data or ("jft-300m",)
        for axis, model, change, tasks in made
    ]
    yield from trained_once(_read_on_its_way(cell) if cell.axes == ("pooling",) else cell for cell in cells)


def _read_on_its_way(cell: Cell) -> Cell:
    """Return a cell with the same training, evaluated seven times during it, after each 1/7: the ViT paper's Figure 9
    shows accuracy over the 7 epochs of JFT-300M. The learning rate falls to zero once, over the whole training, and not
    before each evaluation."""
    whole = cell.horizons[-1]
    recipe = replace(
        cell.recipe, schedule="branch", decay=cell.recipe.cooldown_shape, cooldown=0.0, timescale_images=whole
    )
    return replace(cell, recipe=recipe, horizons=tuple(whole * part // READINGS for part in range(1, READINGS + 1)))


def _lengths(model: str, change: Mapping[str, Any], data: str, options: SuiteOptions) -> tuple[int, ...]:
    """Return horizons in images seen: 7 epochs of JFT-300M; 7 and 14 epochs for the network of Figure 10 with the usual
    recipe. On another upstream set, the epochs are those of `_paper.images_seen`. `change`: the fields of the recipe
    that the variant changes."""
    usual = _paper.images_seen(data, options)
    return (usual, 2 * usual) if model == "ViT-L/16" and not change and data == "jft-300m" else (usual,)


def _changed(cell: Cell, change: Mapping[str, Any]) -> Cell:
    """Return the cell trained as published, except for the changes of a variant.

    Args:
        change: field of the recipe -> value; "lr_factor" multiplies the learning rate.
    """
    trained = _paper.as_published(cell)
    fields = dict(change)
    rate = round(trained.recipe.lr * fields.pop("lr_factor", 1.0), 10)  # exactly 3e-4, without rounding error
    return replace(trained, recipe=replace(trained.recipe, **{"lr": rate, **fields}))


def variants(scale: AblationScale, base: str) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield (axis, model, what differs from the suites' recipe) for every variant of the ViT `base`. An axis is a
    comparison."""
    row = config_for(base, image_size=28, channels=1, num_classes=0)
    for position, places in POSITIONS.items():
        yield from (("position", named(base, row, position=position, position_at=place), {}) for place in places)
    for pooling in ("cls", "mean"):
        model = named(base, row, position="learned-1d", pooling=pooling)
        usual = recipe_for(base, **scale.recipe).lr
        yield from (("pooling", model, {"lr": usual * factor}) for factor in scale.pooling_factors)
    large, small = scale.patches
    half, double = row.width // 2, row.width * 2
    mlp = row.mlp_width
    for changes in (
        {},
        {"depth": 1},
        {"depth": 2 * row.depth},
        {"width": half},
        {"width": double},
        {"mlp_width": mlp // 4},
        {"mlp_width": mlp * 4},
        {"patch_size": large},
        {"patch_size": small},
        {"depth": row.depth - 1, "width": half, "mlp_width": mlp // 2, "patch_size": large},
        {"depth": row.depth + 1, "width": half * 5 // 2, "mlp_width": mlp * 5 // 4, "patch_size": small},
    ):
        yield "shape", named(base, row, **changes), {}
    even = scale.conv_patch
    for model in (
        named(base, row, patch_size=even),
        named(base, row, patch_size=even, stem="conv"),
        named(base, row, patch_size=even, stem="conv", depth=row.depth - 1),
        base,
        f"Axial{base}",
    ):
        yield "stem", model, {}
    for rates, change in zip(scale.resnet_rates, ({}, SGD), strict=True):
        yield from (("optimizer", scale.resnet, {**change, "lr": rate}) for rate in rates)


def named(base: str, row: Any, **changes: Any) -> str:
    """Return the name of a model in which some fields of its configuration are changed. Fields are added as options; a
    patch size replaces that in the name.

    Args:
        base: name of the model that is changed.
        row: its configuration; fields that have the same value there are left out of the name.
        changes: field -> value.
    """
    patch = changes.pop("patch_size", None)
    if patch is not None:
        base = f"{base.rpartition('/')[0]}/{patch}"
    return ":".join([base, *(f"{key}={value}" for key, value in changes.items() if getattr(row, key) != value)])


SUITE = Suite(
    name="ablation",
    question="what do position embeddings, pooling, shape, stem and optimizer change, one at a time?",
    figures=("ablation-position", "ablation-pooling", "ablation-shape", "ablation-variants"),
    questions=("as-published",),
    headline=(*HEADLINE, _paper.SHOWN_FEWSHOT),
    downstream=HEADLINE,
    varies={
        "pooling": ("lr",),
        "optimizer": ("lr", "optimizer", "weight_decay"),
        "recipe": ("lr", "weight_decay"),
    },
    cells=cells,
)
