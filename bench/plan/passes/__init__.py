"""Passes over a suite's cells before they are planned: one file each, which exports PASS.

A pass says which others it comes after, and before; of those that nothing orders, the first by name comes first.
"""

from __future__ import annotations

from graphlib import TopologicalSorter

from bench.plan.study_cells import Pass, StudyCells, StudyRequest
from bench.study import registry


def in_order() -> list[Pass]:
    """Every pass, between those that it names."""
    passes = {name: registry.load("pass", name) for name in registry.names("pass")}
    earlier = {name: set(one.after) for name, one in passes.items()}
    for name, one in passes.items():
        for later in one.before:
            earlier.setdefault(later, set()).add(name)
    return [passes.get(name) or registry.load("pass", name) for name in TopologicalSorter(earlier).static_order()]


def apply_all(study: StudyCells, request: StudyRequest) -> StudyCells:
    """The study after every pass that it needs.

    Raises:
        UserError: as the passes.
    """
    for one in in_order():
        if one.needed(request):
            study = one.apply(study, request)
    return study
