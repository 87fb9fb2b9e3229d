"""--set, --sweep, --horizons and --recipe change every cell."""

from __future__ import annotations

from dataclasses import replace

from bench.plan.apply_overrides import changed
from bench.plan.study_cells import Pass, StudyCells, StudyRequest


def apply(study: StudyCells, request: StudyRequest) -> StudyCells:
    """The study with its recipes and budgets as they were asked for; see `bench.plan.apply_overrides`.

    Raises:
        UserError: a change that a cell does not allow.
    """
    return replace(study, cells=tuple(changed(request.overrides, study.cells, request.sizes)))


PASS = Pass(apply=apply, after=("size-limits",))
