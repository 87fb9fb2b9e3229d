"""Notes on the smallest difference of accuracies that each test set can show, before anything is run."""

from __future__ import annotations

from dataclasses import replace

from bench.core.formatting import percent
from bench.plan.study_cells import StudyCells, StudyRequest
from bench.stats.paired import POWER, USUALLY_DISAGREE, detectable


def apply(study: StudyCells, request: StudyRequest) -> StudyCells:
    """The study with a note per set on which models are compared."""
    limits = {task.data: task.kwargs.get("test_limit") for cell in study.cells for task in cell.tasks[:1]}
    images = {name: min(request.sizes[name].test, limit or request.sizes[name].test) for name, limit in limits.items()}
    notes = [
        f"{count:,} test images of {name} tell two models apart whose accuracies differ by "
        f"{percent(detectable(count))} points or more (with a chance of {POWER:.0%}, where exactly one is right "
        f"on {USUALLY_DISAGREE:.0%} of the images)."
        for name, count in images.items()
        if ":groups-" not in name  # whose images are not independent
    ]
    return replace(study, notes=(*study.notes, *notes))
