"""Finds learning-rate sweeps whose best rate is at or beyond an end of the sweep."""

from __future__ import annotations

from collections.abc import Iterator

from bench.analysis import lr_sweep
from bench.analysis.check import Check
from bench.analysis.evidence import Evidence
from bench.analysis.findings import ValidityCheck

RATE_AT_EDGE = "rate at edge"
"""`names`: models whose best learning rate is at or beyond an end of the sweep, so that they may look too bad."""


def find(evidence: Evidence) -> Iterator[ValidityCheck]:
    """Yield one result that names the models whose best learning rate is at or beyond an end of the sweep; none if
    there are no such models."""
    if edges := dict.fromkeys(s.model for s in lr_sweep.sweeps(evidence) if s.edge):
        yield ValidityCheck(kind=RATE_AT_EDGE, names=tuple(edges))


CHECK = Check(
    order=15,
    find=find,
    words={
        RATE_AT_EDGE: "The best learning rate of {names} lies at or beyond the edge of its sweep: "
        "none is chosen, and a better rate may exist.",
    },
)
