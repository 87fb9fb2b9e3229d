"""A pass that adds notes on the smallest difference of accuracies that each test set can show, before anything is
run."""

from __future__ import annotations

from dataclasses import replace

from bench.core.formatting import percent, plural
from bench.plan.study_cells import Pass, StudyCells, StudyRequest


def apply(study: StudyCells, request: StudyRequest) -> StudyCells:
    """Return the study with a note on each data set on which models are compared: the smallest difference of accuracies
    that its test images can show."""
    limits = {task.data: task.kwargs.get("test_limit") for cell in study.cells for task in cell.tasks[:1]}
    images = {name: min(request.sizes[name].test, limit or request.sizes[name].test) for name, limit in limits.items()}
    groups = {name: request.sizes[name].test_groups for name in images}
    of_one_label = {name: count for name, count in images.items() if not request.sizes[name].several}
    unsaid = {name: count for name, count in of_one_label.items() if ":groups-" not in name}
    notes = [_note(name, count, groups[name]) for name, count in unsaid.items()]
    return replace(study, notes=(*study.notes, *notes))


def _note(name: str, count: int, groups: int | None) -> str:
    if groups is not None:  # only a packed set carries its groups with it
        return f"{name}: {plural(groups, 'group')} to test. Intervals take groups as independent, not their images."
    from bench.stats.paired import POWER, detectable  # imports SciPy, for which other plans need not wait

    if (found := detectable(count)) is None:
        return f"{plural(count, 'test image')} of {name} cannot tell two models apart."
    gap, disagree = found
    return (
        f"{count:,} test images of {name} tell two models apart whose accuracies differ by {percent(gap)} points or "
        f"more (with a chance of {POWER:.0%}, where exactly one is right on {disagree:.0%} of the images)."
    )


PASS = Pass(apply=apply, needed=lambda r: r.suite.advises, after=("shared-warmup",))
