"""A pass for --only: chooses the cells of the study that this run does."""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence
from dataclasses import replace

from bench.core.errors import UserError
from bench.plan.study_cells import Pass, StudyCells, StudyRequest
from bench.study.cell import Cell

AXIS = "axis="  # begins a pattern that names an axis (a comparison of the suite), not runs


def apply(study: StudyCells, request: StudyRequest) -> StudyCells:
    """Return the study with the cells that match --only chosen for this run; without the option, all cells.

    Raises:
        UserError: no cell matches.
    """
    return replace(study, chosen=matching(study.cells, request.only))


def matching(cells: Sequence[Cell], patterns: Sequence[str]) -> tuple[Cell, ...]:
    """Return the cells that match one of the patterns; all cells if there are no patterns. "axis=NAME" matches the
    cells on that axis (comparison) of the suite; any other pattern, with wildcards as in file names, matches a part of
    a cell's name or all of it.

    Raises:
        UserError: no cell matches.
    """
    axes = {pattern.removeprefix(AXIS) for pattern in patterns if pattern.startswith(AXIS)}
    names = [pattern.lower() for pattern in patterns if not pattern.startswith(AXIS)]
    wanted = [form for name in names for form in (name, f"*{name}*")]
    chosen = tuple(
        cell
        for cell in cells
        if not patterns or axes & {*cell.axes} or any(fnmatch.fnmatch(cell.readable_name, form) for form in wanted)
    )
    if patterns and not chosen:
        some = ", ".join(sorted({c.readable_name for c in cells})[:8])
        there = ", ".join(sorted({axis for cell in cells for axis in cell.axes}))
        raise UserError(f"No run matches --only {' '.join(patterns)}.", f"Names are like: {some}. Axes: {there}.")
    return chosen


PASS = Pass(apply=apply, after=("rehearsal",))
