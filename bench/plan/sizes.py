"""The numbers of images that a suite asks for, cut to what a data set has. Budgets stay as they are.

A number that is larger than the set means the whole set, once. `--data NAME@N` makes N images the whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from bench.core import registry
from bench.core.errors import UserError
from bench.core.spec import Cell
from bench.data.load import parse
from bench.plan import estimate
from bench.suites._contract import SuiteOptions, merge


def split(options: SuiteOptions) -> tuple[SuiteOptions, dict[str, int]]:
    """The options with plain names of data sets, and the N of each that was given as NAME@N.

    Raises:
        UserError: no size, or a name given twice.
    """
    if options.data is None:
        return options, {}
    pairs = [parse(text) for text in options.data]
    names = tuple(name for name, _ in pairs)
    for text, (name, size) in zip(options.data, pairs, strict=True):
        if size is not None and size < 1:
            raise UserError(f"{text}: a data set needs at least one image.", f"For example {name}@1000.")
        if names.count(name) > 1:
            raise UserError(f"Data set {name!r} is given {names.count(name)} times.", "A suite cuts a set in one way.")
    return replace(options, data=names), {name: size for name, size in pairs if size is not None}


def fit(
    cells: Sequence[Cell],
    options: SuiteOptions,
    limits: Mapping[str, int],
    *,
    say: Callable[[str], None] = lambda _: None,
) -> list[Cell]:
    """The cells with no size beyond their set's, or beyond its limit.

    Only sets that were named are looked into, and those that declare their size: a suite's own are large enough.

    Args:
        say: told what was cut, one sentence per set.

    Raises:
        UserError: a set is not here, or has fewer images than its limit.
    """
    there = _sizes(cells, options, limits)
    wholes = {cell.data for cell in cells if cell.num_images is None and cell.horizons != (0,)}
    wholes |= {name for name in there if _declared(name)}
    kept, cut = [], []
    for cell in cells:
        name, size = cell.data, cell.num_images
        if name in there and (size is None or size > there[name] or (size == there[name] and name in wholes)):
            cut.append(replace(cell, num_images=limits.get(name)))
        else:
            kept.append(cell)
    for name, most in there.items():
        beyond = sorted({c.num_images for c in cells if c.data == name and c.num_images and c.num_images > most})
        if beyond:
            has = f"is cut at {most:,} images" if name in limits else f"has {most:,} training images"
            *others, last = (f"{size:,}" for size in beyond)
            say(f"{name} {has}; they stand for the suite's {' and '.join(filter(None, (', '.join(others), last)))}.")
    return [*kept, *_once(cut)]


def _sizes(cells: Sequence[Cell], options: SuiteOptions, limits: Mapping[str, int]) -> dict[str, int]:
    """Data set -> the most images that a cell may have of it."""
    sized = {cell.data for cell in cells if cell.num_images is not None}
    names = {name for name in sized if name in (options.data or ()) or _declared(name)} | set(limits)
    looked = [replace(cell, num_images=limits.get(cell.data), tasks=()) for cell in cells if cell.data in names]
    found = estimate.data_sizes(looked, root=options.data_root, absent_too=options.scale == "paper")
    return {name: limits.get(name, size.train) for name, size in found.items()}


def _declared(name: str) -> bool:
    return isinstance(getattr(registry.load("data set", name), "SIZE", None), dict)


def _once(cells: Iterable[Cell]) -> list[Cell]:
    """A cell whose budgets are all among those of an otherwise equal one is that one, with the labels of both."""
    found: list[Cell] = []
    for cell in sorted(merge(cells), key=lambda cell: -len(cell.horizons)):
        for place, other in enumerate(found):
            if set(cell.horizons) <= set(other.horizons) and cell == replace(other, horizons=cell.horizons):
                found[place] = replace(other, axes=tuple(dict.fromkeys(other.axes + cell.axes)))
                break
        else:
            found.append(cell)
    return found
