"""A pass that leaves out trainings on a part of a data set that end before any image is seen twice. Training on a
larger part of the set shows the same, because every image is new to both."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from bench.core.by_key import by_key
from bench.core.formatting import join
from bench.plan.study_cells import Pass, StudyCells, StudyRequest
from bench.study.cell import Cell


def apply(study: StudyCells, request: StudyRequest) -> StudyCells:
    """Return the study without cells that a cell on a larger part of the data makes superfluous."""
    cells, notes = without_alike(study.cells)
    return replace(study, cells=tuple(cells), notes=(*study.notes, *notes))


def without_alike(cells: Sequence[Cell]) -> tuple[list[Cell], tuple[str, ...]]:
    """Return the cells without superfluous ones, and a note on what was left out. A cell is superfluous if its longest
    budget ends before any image is seen twice, and the same model is trained on a larger part of the set for as long:
    every image is new to both, and reports count distinct images."""
    sized = (cell for cell in cells if "data_size" in cell.axes and cell.horizons[-1])
    groups = by_key((replace(cell, num_images=None, horizons=(0,)), cell) for cell in sized)
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


PASS = Pass(
    apply=apply,
    needed=lambda r: r.scale == "gpu" and not (r.gives_budgets or r.keeps_fitted_budgets),
    after=("overrides",),
)
