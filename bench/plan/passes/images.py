"""A pass that adapts images, models and downstream sets to the size of the data sets that the user named."""

from __future__ import annotations

from dataclasses import replace

from bench.plan.study_cells import Pass, StudyCells, StudyRequest


def apply(study: StudyCells, request: StudyRequest) -> StudyCells:
    """Return the study with images of one size, evaluated on the downstream sets that the user named; see
    `bench.plan.images`.

    Raises:
        UserError: the patches of a model that the user named do not divide the size.
    """
    cells, notes = request.images.at_one_size(study.cells)
    return replace(study, cells=tuple(cells), stored=dict(request.images.names), notes=(*study.notes, *notes))


PASS = Pass(apply=apply, after=("untrainable",))
