"""A pass that keeps only cells of at most 1,000 training images."""

from dataclasses import replace

from bench.plan.study_cells import Pass


def apply(study, request):  # StudyCells, StudyRequest (bench/plan/study_cells.py) -> StudyCells
    kept = tuple(cell for cell in study.cells if (cell.num_images or 0) <= 1000)
    return replace(study, cells=kept, notes=(*study.notes, "Larger sizes are left out."))


PASS = Pass(apply=apply, needed=lambda request: request.scale == "cpu", after=("size-limits",))
