"""A pass for --metrics: makes tasks compute other metrics beside accuracy."""

from __future__ import annotations

import inspect
from dataclasses import replace

from bench.core.errors import UserError, unknown
from bench.core.metrics import BESIDE
from bench.plan.study_cells import Pass, StudyCells, StudyRequest
from bench.study import registry
from bench.study.cell import TaskSpec


def apply(study: StudyCells, request: StudyRequest) -> StudyCells:
    """Return the study in which all tasks that can compute other metrics than their own also compute those of
    --metrics.

    Raises:
        UserError: a metric is not known, or no task takes one.
    """
    asked = request.what.metrics
    for name in asked:
        if name not in ("accuracy", *BESIDE):
            raise unknown("metric", name, ("accuracy", *BESIDE))
    metrics = tuple(name for name in BESIDE if name in asked)

    def taking(task: TaskSpec) -> TaskSpec:
        if "metrics" not in inspect.signature(registry.load("task", task.task).evaluate).parameters:
            return task
        options = {**task.kwargs, "metrics": metrics} if metrics else task.kwargs
        return replace(task, options=tuple(options.items()))

    cells = tuple(replace(cell, tasks=tuple(map(taking, cell.tasks))) for cell in study.cells)
    if metrics and cells == study.cells:
        what = f"No task of suite {request.suite.name!r} takes other metrics than its own."
        raise UserError(what, "Leave out --metrics, or name a task that does: --tasks linear.")
    costly = {
        replace(cell, tasks=tuple(map(taking, cell.tasks))): tuple(map(taking, tasks))
        for cell, tasks in study.costly.items()
    }
    return replace(study, cells=cells, costly=costly)


PASS = Pass(apply=apply, needed=lambda r: bool(r.what.metrics), after=("tasks",))
