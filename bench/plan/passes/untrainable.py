"""Models that have nothing to train are no cells but as the suite's own baseline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from bench.core.errors import UserError
from bench.plan.study_cells import Pass, StudyCells, StudyRequest
from bench.study import registry
from bench.study.cell import Cell


def apply(study: StudyCells, request: StudyRequest) -> StudyCells:
    """The study without trainings of models that have nothing to train.

    Raises:
        UserError: such a model was named, and the suite has no baseline of it.
    """
    return replace(study, cells=tuple(trainable(study.cells)))


def trainable(cells: Sequence[Cell]) -> list[Cell]:
    """The cells, without trainings of models that have nothing to train: of these stays the suite's own baseline, the
    untrained model read once."""
    fixed = {cell.model for cell in cells if not registry.family_of(cell.model).trains}
    kept = [cell for cell in cells if cell.model not in fixed or (cell.job == "train" and cell.horizons == (0,))]
    if lost := sorted(fixed - {cell.model for cell in kept}):
        raise UserError(
            f"{lost[0]!r} has nothing to train, and this suite does not include it as a baseline.",
            "Leave it out of --models; the suites scaling, data and smoke include it.",
        )
    return kept


PASS = Pass(apply=apply)
