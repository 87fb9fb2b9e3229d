"""A pass that cuts the number of training images of each cell to what its data set holds, or to the N of NAME@N."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from bench.core.formatting import join
from bench.data.load import data_set
from bench.plan.sizes import DataSizes
from bench.plan.study_cells import Pass, StudyCells, StudyRequest
from bench.study.cell import Cell


def apply(study: StudyCells, request: StudyRequest) -> StudyCells:
    """Return the study in which no cell asks for more images than its data set has.

    Raises:
        UserError: the N of NAME@N is more than a set has.
    """
    own = {name: [c.data for c in study.cells if c.data.startswith(f"{name}:")] for name in request.upstream or ()}
    stored = {name: study.stored.get(name) or (sized or [name])[0] for name, sized in own.items()}  # or by the suite
    limits = {stored[name]: size for name, size in request.limits.items()}
    cells, notes = clipped(study.cells, named=tuple(stored.values()), limits=limits, sizes=request.sizes)
    return replace(study, cells=tuple(cells), notes=(*study.notes, *notes))


def clipped(
    cells: Sequence[Cell], *, named: Sequence[str], limits: Mapping[str, int], sizes: DataSizes
) -> tuple[list[Cell], tuple[str, ...]]:
    """Return the cells with no more training images than their set has, or than its limit, and a note for each set
    whose numbers were cut.

    All numbers that are larger than a set mean the whole set, which is trained on once; budgets stay as they are. Only
    sets that the user named and sets that declare their size are checked, because a suite's own sets are large enough.

    Args:
        named: names of the sets that the user named.
        limits: name of a set -> N, for each that was given as NAME@N.

    Raises:
        UserError: a limit is more than its set has.
    """
    sized = {cell.data for cell in cells if cell.num_images is not None}
    declares = {name for name in sized | set(limits) if data_set(name).unopened}
    asked = {cell.data for cell in cells}
    most: dict[str, int] = {}  # data set -> images that a cell may use of it
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
