"""Makes the changes that a user asks for (`bench.study.overrides`) to the cells of a suite."""

from __future__ import annotations

import itertools
import math
import re
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from bench.core.cli import literal
from bench.core.errors import UserError
from bench.plan.sizes import DataSizes
from bench.study import registry
from bench.study.cell import CHOICES, PARTS, Cell
from bench.study.overrides import DEFAULTS, MODEL_PREFIX, Overrides
from bench.study.suite import merge, shortest_budget
from bench.train.parts import check_part, files

LENGTH_PATTERN = re.compile(r"(\d{1,15}(?:\.\d+)?(?:e(?:1[0-4]|\d))?)\s*(images?|steps?|epochs?|%)?")
YES_OR_NO = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


def listing() -> str:
    """Return a text on suites, fields of recipes, and recipes of the paper, for --help."""
    from bench.suites import _paper

    suites = (f"\n  {name:15} {registry.load('suite', name).question}" for name in registry.names("suite"))
    allowed = CHOICES | {kind: files(kind) for kind in PARTS}
    words = "; ".join(f"{name} ({', '.join(allowed[name])})" if name in allowed else name for name in DEFAULTS)
    parts = (f"fields of a recipe: {words}", f"recipes of the paper: {', '.join(_paper.rows())}")
    recipes = "\n".join(textwrap.fill(part, 110, break_on_hyphens=False) for part in parts)
    return f"\nsuites, and what each asks:{''.join(suites)}\n{recipes}\n"


def length(text: str, cell: Cell, sizes: DataSizes, *, whole: int | None = None) -> int:
    """Return a length of training in images, from "8000", "8000images", "100steps", "2epochs", or "5%" of `whole`.

    Args:
        whole: images; None: the cell's longest horizon.

    Raises:
        UserError: the text has another form.
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
    """Return a horizon in images. Raise UserError for less than an image; only 0 itself means the untrained network."""
    images = length(text, cell, sizes)
    if images == 0 and text.strip("0."):
        raise UserError(f"A horizon of {text!r} is less than an image of {cell.data_name}.", "Give at least one image.")
    return images


def _as_in_the_paper(cell: Cell, recipe: str, *, shortest: int) -> Cell:
    """Return the cell with the recipe of the paper's row of this name. Raise UserError if the model cannot be trained
    like that. `shortest`: images of the study's shortest budget."""
    from bench.suites import _paper

    row = _paper.row(recipe)
    if row.dropout and not registry.family_of(cell.model).has_dropout:
        raise UserError(
            f"{recipe} has a dropout of {row.dropout}, and {cell.model} has no dropout.",
            "Name models that have with --models (ViTs, hybrids), or take a recipe without: "
            f"{next(name for name, other in _paper.rows().items() if not other.dropout)}.",
        )
    return _paper.scaled(cell, row, batch=cell.recipe.batch, shortest=shortest)


def _value(key: str, text: str) -> Any:
    """Convert a text to the type that the field `key` of a recipe has; raise UserError if that fails."""
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
    """Convert a text to a number, a pair of numbers and the like, or a bool for yes or no; else return it unchanged."""
    if text.isalpha() and text.lower() in YES_OR_NO:
        return YES_OR_NO[text.lower()]
    try:
        value = literal(text)
        hash(value)  # it becomes part of a cell's identity
        return value
    except TypeError:
        return text


def changed(overrides: Overrides, cells: Sequence[Cell], sizes: DataSizes) -> list[Cell]:
    """Return the cells with the user's changes. Each cell that trains becomes one for each combination of swept values;
    cells that train nothing (raw pixels) stay.

    Args:
        sizes: sizes of the data sets, which give the length of an epoch.

    Raises:
        UserError: a field does not take its value, or horizons are no ascending list.
    """
    if not (overrides.recipe or overrides.horizons or overrides.set or overrides.sweep):
        return list(cells)
    trains = (cell.horizons != (0,) or cell.job != "train" for cell in cells)
    changed = [
        pair
        for cell, do in zip(cells, trains, strict=True)
        for pair in (_lengths(overrides, cell, sizes) if do else [(cell, None)])
    ]
    shortest = shortest_budget(cell for cell, settings in changed if settings is not None)
    return merge(
        cell if settings is None else _recipe(overrides, cell, settings, sizes, shortest=shortest)
        for cell, settings in changed
    )


def _lengths(overrides: Overrides, cell: Cell, sizes: DataSizes) -> Iterator[tuple[Cell, dict[str, str] | None]]:
    """Yield, for each combination of swept values, the cell with its batch and horizons, and the settings that are left
    for `_recipe` to make."""
    for values in itertools.product(*(texts for _, texts in overrides.sweep)):
        swept = tuple((key, text) for (key, _), text in zip(overrides.sweep, values, strict=True))
        settings = dict(overrides.set + swept)
        batch = _value("batch", settings["batch"]) if "batch" in settings else cell.recipe.batch
        changed = replace(cell, recipe=replace(cell.recipe, batch=batch))
        if overrides.horizons and cell.job == "train":
            ends = {_horizon(text, changed, sizes) for text in overrides.horizons}
            changed = replace(changed, horizons=tuple(sorted(ends | ({0} & set(cell.horizons)))))
        yield changed, settings


def _recipe(overrides: Overrides, cell: Cell, settings: dict[str, str], sizes: DataSizes, *, shortest: int) -> Cell:
    """Return the cell with its recipe and settings. A warm-up in percent is taken of the study's shortest budget
    (`shortest`, in images), so that all cells warm up alike."""
    if overrides.recipe and cell.job == "train":
        cell = _as_in_the_paper(cell, overrides.recipe, shortest=shortest)
    for key, text in settings.items():
        if key.startswith(MODEL_PREFIX):
            options = dict(cell.model_options) | {key.removeprefix(MODEL_PREFIX): _literal(text)}
            cell = replace(cell, model_options=tuple(options.items()))
        else:
            whole = shortest if key == "warmup_images" else None
            value: Any = length(text, cell, sizes, whole=whole) if key.endswith("_images") else _value(key, text)
            if key == "warmup_images" and text.endswith("%") and value > (shortest or cell.horizons[-1]):
                raise UserError(f"A warm-up of {text} is longer than the training.", "Give up to 25%, e.g. 5%.")
            if key in PARTS:
                check_part(key, value)
            cell = replace(cell, recipe=replace(cell.recipe, **{key: value}))
    return cell
