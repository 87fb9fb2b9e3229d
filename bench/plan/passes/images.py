"""Images, models and downstream sets follow the size of the data that were named."""

from __future__ import annotations

from dataclasses import replace

from bench.plan.study_cells import Pass, StudyCells, StudyRequest


def apply(study: StudyCells, request: StudyRequest) -> StudyCells:
    """The study at the size of its images, judged on the sets that were named; see `bench.plan.images`.

    Raises:
        UserError: a model that was named and whose patches do not divide the size.
    """
    cells, notes = request.images.at_one_size(study.cells)
    return replace(study, cells=tuple(cells), stored=dict(request.images.names), notes=(*study.notes, *notes))


PASS = Pass(apply=apply, after=("untrainable",))
