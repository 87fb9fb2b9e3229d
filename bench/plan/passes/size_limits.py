"""A pass that cuts numbers of images to what the data sets hold, or to the N of NAME@N."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from bench.core.formatting import join
from bench.data.load import data_set
from bench.plan.sizes import DataSizes
from bench.plan.study_cells import Pass, StudyCells, StudyRequest
from bench.study.cell import Cell


def apply(study: StudyCells, request: StudyRequest) -> StudyCells:
    """Return the study with no number of images beyond that of its data set.

    Raises:
        UserError: a limit is more than a set has.
    """
    own = {name: [c.data for c in study.cells if c.data.startswith(f"{name}:")] for name in request.upstream or ()}
    stored = {name: study.stored.get(name) or (sized or [name])[0] for name, sized in own.items()}  # or by the suite
    limits = {stored[name]: size for name, size in request.limits.items()}
    cells, notes = clipped(study.cells, named=tuple(stored.values()), limits=limits, sizes=request.sizes)
    return replace(study, cells=tuple(cells), notes=(*study.notes, *notes))


def clipped(
    cells: Sequence[Cell], *, named: Sequence[str], limits: Mapping[str, int], sizes: DataSizes
) -> tuple[list[Cell], tuple[str, ...]]:
    """Return the cells with no number of images beyond their set's, or beyond its limit, and a note for each set where
    numbers were cut.

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
            raise data_set(name).too_few(name, asked=most[name], there=there)
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


PASS = Pass(apply=apply, after=("hours",))
