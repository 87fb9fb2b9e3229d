"""Finds scores that are left out because another cell has replaced them."""

from __future__ import annotations

from collections.abc import Iterator

from bench.analysis.check import Check, grouped
from bench.analysis.evidence import Evidence
from bench.analysis.findings import ValidityCheck
from bench.core.by_key import by_key

SUPERSEDED = "superseded"
"""Scores of a cell are left out, because the current grid of cells, a newer revision or a later run has them. `names`:
the cell; `groups`: data sets of these scores, by task."""


def find(evidence: Evidence) -> Iterator[ValidityCheck]:
    """Yield a result for each cell that has scores which another cell of the same variant (the same training, whatever
    the seed) replaces."""
    for cell, pairs in evidence.set_aside.items():
        yield ValidityCheck(kind=SUPERSEDED, names=(cell,), groups=grouped(by_key(set(pairs))))


CHECK = Check(
    order=12,
    find=find,
    words={
        SUPERSEDED: "Excluded, because a newer run measured the same scores: {names} ({groups}).",
    },
)
