"""Passes over a suite's cells before they are planned: one file each, which exports PASS.

A pass says which others it comes after; of those that nothing orders, the first by name comes first.
"""

from __future__ import annotations

from graphlib import TopologicalSorter

from bench.plan.study_cells import Pass, StudyCells, StudyRequest
from bench.study import registry


def in_order() -> list[Pass]:
    """Every pass, each after those that it names."""
    before = {name: registry.load("pass", name).after for name in registry.names("pass")}
    return [registry.load("pass", name) for name in TopologicalSorter(before).static_order()]


def apply_all(study: StudyCells, request: StudyRequest) -> StudyCells:
    """The study after every pass that it needs.

    Raises:
        UserError: as the passes.
    """
    for one in in_order():
        if one.needed(request):
            study = one.apply(study, request)
    return study
