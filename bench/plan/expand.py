"""Expands the options of a command line to cells: the whole grid of the study, and the part selected for this run.

In this order: the suite's cells; the size of images, models that fit it, downstream sets; numbers of images cut to what
the data sets hold; overrides of the recipe; cells that have become one; tasks; `--only`.
"""

from __future__ import annotations

import fnmatch
import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from bench.core import registry
from bench.core.errors import UserError
from bench.core.formatting import join
from bench.core.spec import Cell, TaskSpec
from bench.data.load import data_set, num_images, parse
from bench.plan import chosen_grid, hours
from bench.plan.images import StudyImages
from bench.plan.options import StudyOptions
from bench.plan.sizes import DataSizes
from bench.suites._contract import Suite, SuiteOptions


@dataclass(frozen=True, kw_only=True)
class Grid:
    """The cells of a study.

    Attributes:
        cells: all of them. chosen: those that `--only` leaves. notes: where they differ from the suite's.
    """

    cells: tuple[Cell, ...]
    chosen: tuple[Cell, ...]
    notes: tuple[str, ...] = ()


def expand(suite: Suite, options: StudyOptions, sizes: DataSizes, *, device_name: str = "H100") -> Grid:
    """The cells of a suite under these options, every name in them checked.

    Args:
        options: with a scale that is resolved.
        sizes: used only where sizes of data matter: for sets that were named or declare a size, and for epochs.
        device_name: the accelerator that the hours of scale `gpu` are of.

    Raises:
        UserError: an unknown model, data set or task (with the nearest names), a data set that is not here or is too
            small, or nothing left by `--only`.
    """
    data, limits = _split_limits(options.data)
    for name in options.models or ():
        registry.check_model(name)
    for name in (*(data or ()), *(options.downstream or ())):
        data_set(name)
    for name in options.tasks:
        registry.load("task", name)
    images = StudyImages(
        asked=options.image_size,
        upstream=data,
        downstream=options.downstream,
        models=options.models,
        root=options.data_root,
    )
    asked = SuiteOptions(
        scale=options.scale,
        models=options.models,
        data=data,
        seeds=options.seeds,
        data_root=options.data_root,
        image_size=images.asked,
        hours=options.hours or SuiteOptions.hours,
        num_images=_counted(data or (), limits, root=options.data_root) if options.scale == "paper" else {},
    )
    cells, fitted = images.fit(_without_untrainable(suite.cells(asked)))
    given = options.overrides.horizons and not any(text.endswith("%") for text in options.overrides.horizons)
    if options.hours is not None and given:
        raise UserError(
            "--hours chooses the budgets that --horizons gives.",
            "Give one of them; --image-size sets the size of images.",
        )
    chosen = bool(options.grid) and options.scale == "gpu"  # its lines hold budgets that were fitted then
    if options.scale == "gpu" and not suite.exclusive and not given and not chosen:
        within = hours.fit(cells, hours=asked.hours, device=device_name, keep=options.models or ())
        cells, fitted = list(within.cells), (*fitted, within.note)
    elif options.hours is not None and not chosen:
        raise UserError(
            f"--hours chooses the budgets of scale gpu, and this is {options.scale}.",
            "Give --scale gpu, or --horizons.",
        )
    stored = {name: images.names.get(name, name) for name in data or ()}
    limits = {stored[name]: size for name, size in limits.items()}
    cells, notes = _clip(cells, named=tuple(stored.values()), limits=limits, sizes=sizes)
    cells = options.overrides.apply(cells, sizes)
    if options.scale == "gpu" and not given and not chosen:
        cells, alike = _without_alike(cells)
        notes = (*notes, *alike)
    cells = chosen_grid.within(_united(cells), options.grid, own_budgets=chosen)
    if options.scale == "gpu" and not suite.exclusive and not given and not options.overrides.chooses_warmup:
        cells, shortened = hours.with_one_warmup(cells)
        notes = (*notes, *shortened)
    if options.tasks:
        if not any(cell.tasks for cell in cells):
            what = f"Suite {suite.name!r} judges nothing downstream at scale {options.scale}: no task has data to read."
            raise UserError(what, "Leave out --tasks, or take another suite or scale.")
        cells = [_with_tasks(cell, options.tasks) for cell in cells]
    for cell in cells:
        registry.family_of(cell.model)
        for task in cell.tasks:
            registry.load("task", task.task)
    return Grid(cells=tuple(cells), chosen=_matching(cells, options.only), notes=(*fitted, *notes))


def _counted(data: Sequence[str], limits: Mapping[str, int], *, root: Path | None) -> dict[str, int]:
    """Training images of the named sets, about, or their limits."""
    return {name: limits.get(name) or num_images(name, root=root) for name in data}


def _split_limits(data: Sequence[str] | None) -> tuple[tuple[str, ...] | None, dict[str, int]]:
    """Plain names of data sets, and the N of each that was given as NAME@N."""
    if data is None:
        return None, {}
    pairs = [parse(text) for text in data]
    names = tuple(name for name, _ in pairs)
    for text, (name, size) in zip(data, pairs, strict=True):
        if size is not None and size < 1:
            raise UserError(f"{text}: a data set needs at least one image.", f"For example {name}@1000.")
        if names.count(name) > 1:
            raise UserError(f"Data set {name!r} is given {names.count(name)} times.", "Give each data set once.")
    return names, {name: size for name, size in pairs if size is not None}


def _without_untrainable(cells: Sequence[Cell]) -> list[Cell]:
    """The cells, without trainings of models that have nothing to train: of these stays the suite's own baseline, the
    untrained model read once."""
    fixed = {cell.model for cell in cells if not getattr(registry.family_of(cell.model), "TRAINS", True)}
    kept = [cell for cell in cells if cell.model not in fixed or (cell.job == "train" and cell.horizons == (0,))]
    if lost := sorted(fixed - {cell.model for cell in kept}):
        raise UserError(
            f"{lost[0]!r} has nothing to train, and this suite does not include it as a baseline.",
            "Leave it out of --models; the suites scaling, data and smoke include it.",
        )
    return kept


# -- sizes -------------------------------------------------------------------------------------------------------------


def _clip(
    cells: Sequence[Cell], *, named: Sequence[str], limits: Mapping[str, int], sizes: DataSizes
) -> tuple[list[Cell], tuple[str, ...]]:
    """The cells with no size beyond their set's, or beyond its limit, and a sentence for each set that was cut.

    A number that is larger than the set means the whole set, once; budgets stay as they are. Only sets that were named
    are looked into, and those that declare their size: a suite's own are large enough.
    """
    sized = {cell.data for cell in cells if cell.num_images is not None}
    declares = {name for name in sized | set(limits) if data_set(name).unopened}
    asked = {cell.data for cell in cells}
    most: dict[str, int] = {}  # images that a cell may have of a set
    for name in sorted(((sized & set(named)) | (sized & declares) | set(limits)) & asked):
        most[name] = limits.get(name, sizes[name].train)
        if most[name] > (there := sizes[name].train):
            raise UserError(
                f"{name}@{most[name]}: {name} has only {there} training images.", f"Ask for at most {name}@{there}."
            )
    wholes = {cell.data for cell in cells if cell.num_images is None and cell.horizons != (0,)} | declares
    kept, cut = [], []
    for cell in cells:
        name, size = cell.data, cell.num_images
        if name in most and (size is None or size > most[name] or (size == most[name] and name in wholes)):
            cut.append(replace(cell, num_images=limits.get(name)))
        else:
            kept.append(cell)
    notes = []
    for name, images in most.items():
        beyond = sorted({c.num_images for c in cells if c.data == name and c.num_images and c.num_images > images})
        if beyond:
            has = f"is cut at {images:,} images" if name in limits else f"has {images:,} training images"
            notes.append(f"{name} {has}; all are used instead of the suite's {join([f'{size:,}' for size in beyond])}.")
    return [*kept, *cut], tuple(notes)


def _without_alike(cells: Sequence[Cell]) -> tuple[list[Cell], tuple[str, ...]]:
    """The cells, without those whose budgets, fitted to hours, end before any image comes twice, where a larger part of
    the set is trained on for as long: every image is new to both, and reports count distinct images. A sentence says
    what went."""
    groups: dict[Cell, list[Cell]] = {}
    for cell in cells:
        if "data_size" in cell.axes and cell.horizons[-1]:
            groups.setdefault(replace(cell, num_images=None, horizons=(0,)), []).append(cell)
    gone: dict[Cell, None] = {}
    for members in groups.values():
        for cell in members:
            size, end = cell.num_images or math.inf, cell.horizons[-1]
            if end <= size and any((o.num_images or math.inf) > size and end in o.horizons for o in members):
                gone[cell] = None
    parts: dict[tuple[str, int], dict[str, None]] = {}
    for cell in sorted(gone, key=lambda cell: cell.num_images or 0):
        parts.setdefault((cell.data, cell.num_images or 0), {})[cell.model] = None
    notes = (
        f"Not trained on {size:,} images of {data}, none of which would be seen twice: {join(list(models))}."
        for (data, size), models in parts.items()
    )
    return [cell for cell in cells if cell not in gone], tuple(notes)


def _united(cells: Iterable[Cell]) -> list[Cell]:
    """Cells that differ in nothing but their budgets and axes are one, with those of all: it is one training, since
    budgets change nothing else about it."""
    united: dict[Cell, Cell] = {}
    for cell in cells:
        training = replace(cell, horizons=(0,))
        other = united.setdefault(training, cell)
        if other is not cell:
            united[training] = replace(
                other,
                horizons=tuple(sorted({*other.horizons, *cell.horizons})),
                axes=tuple(dict.fromkeys(other.axes + cell.axes)),
            )
    return list(united.values())


# -- tasks, and the part of the grid that is wanted -----------------------------------------------------------------


def _with_tasks(cell: Cell, tasks: Sequence[str]) -> Cell:
    """The cell judged by these tasks, each on every downstream set that the suite judges it on.

    A task that the suite already uses keeps the options it has there, and as many entries (as at two resolutions).
    """
    data = dict.fromkeys(task.data for task in cell.tasks)
    own: dict[tuple[str, str], list[TaskSpec]] = {}
    for task in cell.tasks:
        own.setdefault((task.task, task.data), []).append(task)
    specs = (own.get((name, on)) or [TaskSpec(task=name, data=on)] for name in tasks for on in data)
    return replace(cell, tasks=tuple(itertools.chain.from_iterable(specs)))


def _matching(cells: Sequence[Cell], patterns: Sequence[str]) -> tuple[Cell, ...]:
    """The cells with a name that one of the patterns matches, wholly or in part; all without a pattern."""
    wanted = [form for pattern in patterns for form in (pattern.lower(), f"*{pattern.lower()}*")]
    chosen = tuple(c for c in cells if not wanted or any(fnmatch.fnmatch(c.readable_name, form) for form in wanted))
    if wanted and not chosen:
        some = ", ".join(sorted({c.readable_name for c in cells})[:8])
        raise UserError(f"No cell matches --only {' '.join(patterns)}.", f"Names are like: {some}.")
    return chosen
