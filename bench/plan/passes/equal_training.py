"""Cells that have become one are trained once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from bench.plan.study_cells import Pass, StudyCells, StudyRequest
from bench.study.cell import Cell


def apply(study: StudyCells, request: StudyRequest) -> StudyCells:
    """The study with every training once."""
    return replace(study, cells=tuple(united(study.cells)))


def united(cells: Iterable[Cell]) -> list[Cell]:
    """Cells that differ in nothing but their budgets and axes are one, with those of all: it is one training, since
    budgets change nothing else about it."""
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
