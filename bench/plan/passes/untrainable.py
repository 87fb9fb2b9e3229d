"""A pass that removes trainings of models that have nothing to train (raw pixels), except the suite's own baseline of
such a model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from bench.core.errors import UserError
from bench.plan.study_cells import Pass, StudyCells, StudyRequest
from bench.study import registry
from bench.study.cell import Cell


def apply(study: StudyCells, request: StudyRequest) -> StudyCells:
    """Return the study without trainings of models that have nothing to train.

    Raises:
        UserError: such a model was named, and the suite has no baseline of it.
    """
    return replace(study, cells=tuple(trainable(study.cells)))


def trainable(cells: Sequence[Cell]) -> list[Cell]:
    """Return the cells without trainings of models that have nothing to train. The suite's own baseline of such a model
    stays: the untrained model, evaluated once.

    Raises:
        UserError: such a model was named, and the suite has no baseline of it.
    """
    fixed = {cell.model for cell in cells if not registry.family_of(cell.model).trains}
    kept = [cell for cell in cells if cell.model not in fixed or (cell.job == "train" and cell.horizons == (0,))]
    if lost := sorted(fixed - {cell.model for cell in kept}):
        raise UserError(
            f"{lost[0]!r} has nothing to train, and this suite does not include it as a baseline.",
            "Leave it out of --models; the suites scaling, data and smoke include it.",
        )
    return kept


PASS = Pass(apply=apply)
