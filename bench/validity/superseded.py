"""Scores that other cells have replaced."""

from __future__ import annotations

from collections.abc import Iterator

from bench.analysis.check import Check, grouped
from bench.analysis.evidence import Evidence
from bench.analysis.findings import ValidityCheck
from bench.core.by_key import by_key

SUPERSEDED = "superseded"
"""Names (cell,); groups: data sets by task whose scores are set aside, since the current grid, a newer revision or a
later run has them."""


def find(evidence: Evidence) -> Iterator[ValidityCheck]:
    """Scores that are replaced by those of another cell of the same variant, by cell."""
    for cell, pairs in evidence.set_aside.items():
        yield ValidityCheck(kind=SUPERSEDED, names=(cell,), groups=grouped(by_key(set(pairs))))


CHECK = Check(
    order=12,
    find=find,
    words={
        SUPERSEDED: "Excluded, because a newer run measured the same scores: {names} ({groups}).",
    },
)
