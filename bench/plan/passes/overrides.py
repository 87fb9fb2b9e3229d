"""A pass for --set, --sweep, --horizons and --recipe, which change every cell."""

from __future__ import annotations

from dataclasses import replace

from bench.plan.apply_overrides import changed
from bench.plan.study_cells import Pass, StudyCells, StudyRequest


def apply(study: StudyCells, request: StudyRequest) -> StudyCells:
    """Return the study with the changes to recipes and budgets that the user asked for; see
    `bench.plan.apply_overrides`.

    Raises:
        UserError: a cell does not allow a change.
    """
    return replace(study, cells=tuple(changed(request.overrides, study.cells, request.sizes)))


PASS = Pass(apply=apply, after=("size-limits",))
