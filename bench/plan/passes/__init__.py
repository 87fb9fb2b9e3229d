"""Passes over a suite's cells before they are planned: one file each, which exports PASS.

A pass says which others it comes after, and before; passes that nothing orders are applied in order of their names.
"""

from __future__ import annotations

from graphlib import TopologicalSorter

from bench.plan.study_cells import Pass, StudyCells, StudyRequest
from bench.study import registry


def in_order() -> list[Pass]:
    """Return every pass, each later than those that it names in `after` and earlier than those in `before`."""
    passes = {name: registry.load("pass", name) for name in registry.names("pass")}
    earlier = {name: set(one.after) for name, one in passes.items()}
    for name, one in passes.items():
        for later in one.before:
            earlier.setdefault(later, set()).add(name)
    return [passes.get(name) or registry.load("pass", name) for name in TopologicalSorter(earlier).static_order()]


def apply_all(study: StudyCells, request: StudyRequest) -> StudyCells:
    """Return the study after every pass that its request needs.

    Raises:
        UserError: as the passes raise it.
    """
    for one in in_order():
        if one.needed(request):
            study = one.apply(study, request)
    return study
