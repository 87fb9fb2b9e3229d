"""Changes to a suite's training runs: horizons, a recipe by name, single fields, sweeps of fields.

    --horizons 8000,100steps,2epochs      --recipe paper:ViT-B/16:imagenet
    --set clip=0 --set warmup=5%          --sweep lr=1e-4,3e-4,1e-3 --sweep weight_decay=0.03,0.1

Every field of `bench.core.spec.Recipe` can be set; an option of the model as model.<option>. Lengths take a unit.
"""

from __future__ import annotations

import itertools
import math
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar

from bench.core import registry
from bench.core.cli import names_list
from bench.core.errors import UserError, unknown
from bench.core.options import Kind, option
from bench.core.spec import CHOICES, Cell, Recipe
from bench.plan.sizes import DataSizes
from bench.suites.suite import merge, shortest_budget

LENGTH_PATTERN = re.compile(r"(\d{1,15}(?:\.\d+)?(?:e(?:1[0-4]|\d))?)\s*(images?|steps?|epochs?|%)?")
MODEL_PREFIX = "model."  # before the name of an option of the model
CHOSEN_BY_THE_STUDY = ("name", "image_size", "channels", "num_classes")  # arguments of a model besides its options
YES_OR_NO = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
MAX_COMBINATIONS = 10_000  # values of a sweep, all combinations
DEFAULTS = {entry.name: getattr(Recipe(), entry.name) for entry in fields(Recipe)}
ALSO_CALLED = {
    "learning_rate": "lr",
    "batch_size": "batch",
    "wd": "weight_decay",
    "l2": "weight_decay",
    "beta": "betas",
    "grad_clip": "clip",
    "gradient_clip": "clip",
    "clip_norm": "clip",
    "max_norm": "clip",
    "ema": "average",
    "precision": "dtype",
    "scheduler": "schedule",
    "opt": "optimizer",
    "dropout": "model.dropout",
}
"""Names that other trainers give to a field."""
Setting = tuple[str, str]


def listing() -> str:
    """Fields and recipes, for --help."""
    from bench.suites import _paper

    words = "; ".join(f"{name} ({', '.join(CHOICES[name])})" if name in CHOICES else name for name in DEFAULTS)
    parts = (f"fields of a recipe: {words}", f"recipes of the paper: {', '.join(_paper.rows())}")
    return "\n" + "\n".join(textwrap.fill(part, 110, break_on_hyphens=False) for part in parts) + "\n"


def length(text: str, cell: Cell, sizes: DataSizes, *, whole: int | None = None) -> int:
    """A length of training in images: "8000", "8000images", "100steps", "2epochs", or "5%" of `whole`.

    Args:
        whole: images; None: the cell's longest horizon.

    Raises:
        UserError: anything else.
    """
    match = LENGTH_PATTERN.fullmatch(text.replace("_", ""))
    if match is None:
        raise UserError(
            f"{text!r} is not a length of training.", "Give images (8000), 100steps, 2epochs, or 5% for a warm-up."
        )
    number, unit = float(match[1]), (match[2] or "image").rstrip("s")
    if unit == "step":
        return round(number * cell.recipe.batch)
    if unit == "epoch":
        return round(number * (cell.num_images or sizes[cell.data].train))
    return round(number / 100 * (cell.horizons[-1] if whole is None else whole)) if unit == "%" else round(number)


def _horizon(text: str, cell: Cell, sizes: DataSizes) -> int:
    """A horizon. Less than an image is no training, and 0 alone means the untrained network."""
    images = length(text, cell, sizes)
    if images == 0 and text.strip("0."):
        raise UserError(f"A horizon of {text!r} is less than an image of {cell.data_name}.", "Give at least one image.")
    return images


def _as_in_the_paper(cell: Cell, recipe: str, *, shortest: int) -> Cell:
    """The cell trained as in the paper's row of this name, if the model can be trained so."""
    from bench.suites import _paper

    row = _paper.row(recipe)
    if row.dropout and not registry.family_of(cell.model).has_dropout:
        raise UserError(
            f"{recipe} has a dropout of {row.dropout}, and {cell.model} has no dropout.",
            "Name models that have with --models (ViTs, hybrids), or take a recipe without: "
            f"{next(name for name, other in _paper.rows().items() if not other.dropout)}.",
        )
    return _paper.scaled(cell, row, batch=cell.recipe.batch, shortest=shortest)


def _setting(text: str) -> Setting:
    """ "lr=1e-3" -> the field's name in full, and the value as typed."""
    key, equals, value = (part.strip() for part in text.partition("="))
    if not equals or not value:
        raise UserError(f"{text!r} is not a setting.", "Give field=value, e.g. lr=1e-3.")
    if key.startswith(MODEL_PREFIX) and key != MODEL_PREFIX:
        if key.removeprefix(MODEL_PREFIX) in CHOSEN_BY_THE_STUDY:
            raise UserError(f"{key} cannot be set: the study determines it.", "Change it with --models or --data.")
        return key, value
    key = key.replace("-", "_")
    key = f"{key}_images" if f"{key}_images" in DEFAULTS else key
    if key not in DEFAULTS:
        raise unknown("field of a recipe", key, DEFAULTS, meant=ALSO_CALLED.get(key, ""))
    return key, value


def _example(key: str) -> str:
    """Two values that a field can be swept over."""
    default = DEFAULTS.get(key)
    if key in CHOICES:
        return ",".join(CHOICES[key][:2])
    return f"{default:g},{2 * default:g}" if isinstance(default, float) and default else "1,2"


def _value(key: str, text: str) -> Any:
    """The typed text, as the type that the field has."""
    default = DEFAULTS[key]
    if isinstance(default, str):
        return text
    try:
        if isinstance(default, bool):
            return YES_OR_NO[text.lower()]
        if isinstance(default, tuple):
            return tuple(float(part) for part in text.replace("/", ",").split(","))
        value = int(text) if isinstance(default, int) else float(text)
        if not math.isfinite(value):
            raise ValueError(f"{text} is no amount")
        return value
    except (ValueError, KeyError):
        kind = {bool: "yes or no", tuple: "two numbers as 0.9/0.999", int: "a whole number", float: "a number"}
        raise UserError(f"{key} cannot be {text!r}.", f"Give {kind[type(default)]}.") from None


def _literal(text: str) -> Any:
    """A number, a pair of them and the like, yes or no, or the text itself."""
    if text.isalpha() and text.lower() in YES_OR_NO:
        return YES_OR_NO[text.lower()]
    try:
        value = registry.literal(text)
        hash(value)  # it becomes part of a cell's identity
        return value
    except TypeError:
        return text


def _recipe(text: str) -> str:
    from bench.suites import _paper

    _paper.row(text)
    return text


def _swept(text: str) -> tuple[str, tuple[str, ...]]:
    """ "lr=1e-3,2e-3" -> the field's name in full, and the values as typed."""
    key, values = _setting(text)
    if not names_list(values):
        raise UserError(f"--sweep {key} has no values.", f"For example --sweep {key}={_example(key)}.")
    texts = names_list(values)
    if twice := [text for text in texts if texts.count(text) > 1]:
        raise UserError(f"--sweep {key} names {twice[0]} {texts.count(twice[0])} times.", "Give each value once.")
    return key, texts


@dataclass(frozen=True, kw_only=True)
class Overrides:
    """Changes as they were typed; `apply` makes them, but for `grid`, which `bench.plan.passes.chosen_grid` applies."""

    HEADING: ClassVar[str] = "changes to its recipes and grid"

    horizons: tuple[str, ...] = option(
        "compute budgets in images seen, e.g. 8000,16000, or with a unit: 500steps, 2epochs (default: those of "
        "the suite)",
        default=(),
        kind=Kind.LIST,
        read=names_list,
    )
    recipe: str | None = option(
        "train as in a row of the paper's Table 3, scaled down to this batch and budget",
        read=_recipe,
    )
    set: tuple[Setting, ...] = option(
        "change one field of every recipe, e.g. clip=0, warmup=100steps, model.dropout=0.1; repeatable",
        default=(),
        kind=Kind.FIELDS,
        read=_setting,
        metavar="FIELD=VALUE",
    )
    sweep: tuple[tuple[str, tuple[str, ...]], ...] = option(
        "train every network with each of these values; repeat for all combinations",
        default=(),
        kind=Kind.FIELDS,
        read=_swept,
        metavar="FIELD=V1,V2,…",
    )
    grid: tuple[str, ...] = option(
        "of a model (MODEL@IMAGES: on a part of its data) only these budgets and so many seeds, and no model "
        "that is not named; repeatable. vit-bench plan --budget writes them",
        default=(),
        kind=Kind.REPEATED,
        metavar="MODEL=H1,H2 xN",
    )

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Overrides:
        """From values of its options.

        Raises:
            UserError: a field that is both set and swept; too many combinations.
        """
        settings, sweeps = dict(values["set"]), dict(values["sweep"])
        if (total := math.prod(map(len, sweeps.values()))) > MAX_COMBINATIONS:
            raise UserError(f"These sweeps have {total:,} combinations.", f"Sweep over {MAX_COMBINATIONS:,} at most.")
        if twice := sorted(settings.keys() & sweeps.keys()):
            raise UserError(f"{twice[0]} is both set and swept.", "Give one of --set and --sweep.")
        return cls(
            recipe=values["recipe"],
            horizons=values["horizons"],
            set=tuple(settings.items()),
            sweep=tuple(sweeps.items()),
            grid=values["grid"],
        )

    def changes(self, field: str) -> bool:
        """Whether a field of the recipe is set or swept."""
        return field in dict(self.set) or field in dict(self.sweep)

    @property
    def chooses_warmup(self) -> bool:
        """Whether the warm-up is not the suite's."""
        return self.recipe is not None or self.changes("warmup_images")

    def apply(self, cells: Sequence[Cell], sizes: DataSizes) -> list[Cell]:
        """The cells, those that train changed: one for each combination of swept values. Cells that train nothing (raw
        pixels) stay.

        Args:
            sizes: give the length of an epoch.

        Raises:
            UserError: a value that its field does not take, or horizons that are no ascending list.
        """
        if not (self.recipe or self.horizons or self.set or self.sweep):
            return list(cells)
        trains = (cell.horizons != (0,) or cell.job != "train" for cell in cells)
        changed = [
            pair
            for cell, do in zip(cells, trains, strict=True)
            for pair in (self._lengths(cell, sizes) if do else [(cell, None)])
        ]
        shortest = shortest_budget(cell for cell, settings in changed if settings is not None)
        return merge(
            cell if settings is None else self._recipe(cell, settings, sizes, shortest=shortest)
            for cell, settings in changed
        )

    def _lengths(self, cell: Cell, sizes: DataSizes) -> Iterator[tuple[Cell, dict[str, str] | None]]:
        """The cell at its batch and horizons, and the settings that are still to be made: of each combination."""
        for values in itertools.product(*(texts for _, texts in self.sweep)):
            swept = tuple((key, text) for (key, _), text in zip(self.sweep, values, strict=True))
            settings = dict(self.set + swept)
            batch = _value("batch", settings["batch"]) if "batch" in settings else cell.recipe.batch
            changed = replace(cell, recipe=replace(cell.recipe, batch=batch))
            if self.horizons and cell.job == "train":
                ends = {_horizon(text, changed, sizes) for text in self.horizons}
                changed = replace(changed, horizons=tuple(sorted(ends | ({0} & set(cell.horizons)))))
            yield changed, settings

    def _recipe(self, cell: Cell, settings: dict[str, str], sizes: DataSizes, *, shortest: int) -> Cell:
        """The cell in its recipe. A share of the training is one of the study's shortest budget for the warm-up, so
        that all cells warm up alike."""
        if self.recipe and cell.job == "train":
            cell = _as_in_the_paper(cell, self.recipe, shortest=shortest)
        for key, text in settings.items():
            if key.startswith(MODEL_PREFIX):
                options = dict(cell.model_options) | {key.removeprefix(MODEL_PREFIX): _literal(text)}
                cell = replace(cell, model_options=tuple(options.items()))
            else:
                whole = shortest if key == "warmup_images" else None
                value: Any = length(text, cell, sizes, whole=whole) if key.endswith("_images") else _value(key, text)
                if key == "warmup_images" and text.endswith("%") and value > (shortest or cell.horizons[-1]):
                    raise UserError(f"A warm-up of {text} is longer than the training.", "Give up to 25%, e.g. 5%.")
                cell = replace(cell, recipe=replace(cell.recipe, **{key: value}))
        return cell
