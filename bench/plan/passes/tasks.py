"""A pass for --tasks: evaluates every cell by the tasks that the user named, instead of the suite's."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

from bench.core.by_key import by_key
from bench.core.errors import UserError
from bench.plan.study_cells import Pass, StudyCells, StudyRequest
from bench.study.cell import Cell, TaskSpec


def apply(study: StudyCells, request: StudyRequest) -> StudyCells:
    """Return the study, evaluated by the tasks of --tasks.

    Raises:
        UserError: the suite has no tasks, and so no data to evaluate on.
    """
    if not any(cell.tasks for cell in study.cells):
        what = f"Suite {request.suite.name!r} judges nothing on target sets at scale {request.scale}:"
        raise UserError(f"{what} no task has data to read.", "Leave out --tasks, or take another suite or scale.")
    return replace(study, cells=tuple(with_tasks(cell, request.what.tasks) for cell in study.cells))


def with_tasks(cell: Cell, tasks: Sequence[str]) -> Cell:
    """Return the cell, evaluated by the named tasks, each on every downstream set on which the suite evaluates the
    cell.

    If the suite itself uses a task, the task keeps the options that it has there. If the suite uses it more than once
    (as at two resolutions), all of these uses stay.
    """
    data = dict.fromkeys(task.data for task in cell.tasks)
    own = by_key(((task.task, task.data), task) for task in cell.tasks)
    specs = (own.get((name, on)) or [TaskSpec(task=name, data=on)] for name in tasks for on in data)
    return replace(cell, tasks=tuple(itertools.chain.from_iterable(specs)))


PASS = Pass(apply=apply, needed=lambda r: bool(r.what.tasks), after=("slow-tasks",))
