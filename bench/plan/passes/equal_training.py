"""A pass that merges cells that earlier passes have turned into the same training, so that it is done only once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from bench.plan.study_cells import Pass, StudyCells, StudyRequest
from bench.study.cell import Cell


def apply(study: StudyCells, request: StudyRequest) -> StudyCells:
    """Return the study with every training only once."""
    return replace(study, cells=tuple(united(study.cells)))


def united(cells: Iterable[Cell]) -> list[Cell]:
    """Return the cells, merged: those that differ only in budgets and axes (comparisons) become one cell with the
    budgets and axes of all. It is one training, because budgets change nothing else about it."""
    merged: dict[Cell, Cell] = {}
    for cell in cells:
        training = replace(cell, horizons=(0,))
        other = merged.setdefault(training, cell)
        if other is not cell:
            merged[training] = replace(
                other,
                horizons=tuple(sorted({*other.horizons, *cell.horizons})),
                axes=tuple(dict.fromkeys(other.axes + cell.axes)),
            )
    return list(merged.values())


PASS = Pass(apply=apply, after=("redundant-sizes",))
