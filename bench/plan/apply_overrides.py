"""Apply the changes that a user asks for (--recipe, --set, --sweep, --horizons; see `bench.study.overrides`) to the
cells of a suite. A cell is one training run with its evaluations."""

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
    """Return the part of --help that lists suites with their questions, fields of recipes, and recipes of the ViT
    paper."""
    from bench.suites import _paper

    suites = (f"\n  {name:15} {registry.load('suite', name).question}" for name in registry.names("suite"))
    allowed = CHOICES | {kind: files(kind) for kind in PARTS}
    words = "; ".join(f"{name} ({', '.join(allowed[name])})" if name in allowed else name for name in DEFAULTS)
    parts = (f"fields of a recipe: {words}", f"recipes of the paper: {', '.join(_paper.rows())}")
    recipes = "\n".join(textwrap.fill(part, 110, break_on_hyphens=False) for part in parts)
    return f"\nsuites, and what each asks:{''.join(suites)}\n{recipes}\n"


def length(text: str, cell: Cell, sizes: DataSizes, *, whole: int | None = None) -> int:
    """Return a length of training in images. `text` states it as "8000", "8000images", "100steps", "2epochs", or "5%".

    Args:
        cell: its batch size gives the length of a step, and its training set that of an epoch.
        sizes: sizes of the data sets.
        whole: the number of images of which a percentage is taken; None: the cell's longest horizon (budget).

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
    """Return a horizon, the budget in images at which a training is evaluated. The text 0 means the untrained network.

    Raises:
        UserError: the text is no length of training, or comes to less than one image and is not 0 itself.
    """
    images = length(text, cell, sizes)
    if images == 0 and text.strip("0."):
        raise UserError(f"A horizon of {text!r} is less than an image of {cell.data_name}.", "Give at least one image.")
    return images


def _as_in_the_paper(cell: Cell, recipe: str, *, shortest: int) -> Cell:
    """Return the cell with a recipe of the ViT paper, scaled to the cell's batch size.

    Args:
        recipe: name of a row of the paper's Table 3, such as "paper:ViT-B/16:imagenet".
        shortest: images of the study's shortest budget, of which the warm-up is a fraction.

    Raises:
        UserError: there is no such row, or it has dropout and the model has none.
    """
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
    """Return the value of a text: True or False for yes, no and the like, else that of a Python literal such as a
    number or a tuple; any other text is returned unchanged."""
    if text.isalpha() and text.lower() in YES_OR_NO:
        return YES_OR_NO[text.lower()]
    try:
        value = literal(text)
        hash(value)  # it becomes part of a cell's identity
        return value
    except TypeError:
        return text


def changed(overrides: Overrides, cells: Sequence[Cell], sizes: DataSizes) -> list[Cell]:
    """Return the cells with the user's changes. Each cell becomes one cell for each combination of the values of
    --sweep, except cells that train nothing (raw pixels), which stay as they are.

    Args:
        sizes: sizes of the data sets, which give the length of an epoch.

    Raises:
        UserError: a field of a recipe cannot have the value given, or a horizon is no length of training.
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
    """Yield, for each combination of the values of --sweep, the cell with its new batch size and horizons (budgets),
    and the settings (field of a recipe -> value as typed) that `_recipe` has to apply to it."""
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
    """Return the cell with the recipe that --recipe names, and with these settings on top of it.

    Args:
        settings: field of a recipe, or "model." and an option of the model -> value as typed.
        shortest: images of the study's shortest budget. A warm-up in percent is a fraction of it, and not of the cell's
            own budget, so that all cells warm up alike.

    Raises:
        UserError: a setting cannot have its value, or the model cannot be trained by the recipe.
    """
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
