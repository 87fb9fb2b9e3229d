"""Runs at learning rates that a sweep rejected; families that are compared without any sweep."""

from __future__ import annotations

from collections.abc import Iterator

from bench.analysis import lr_sweep
from bench.analysis.check import Check
from bench.analysis.evidence import Evidence
from bench.analysis.findings import Level, ValidityCheck

REJECTED_RATES = "rejected rates"
"""Count: runs at rates that a sweep did not choose, left out but for the sweep."""
RATE_NOT_IN_INTERVAL = "rate not in interval"
"""Families are compared, and every model was trained at one learning rate: no interval holds its choice."""


def find(evidence: Evidence) -> Iterator[ValidityCheck]:
    """The runs that a sweep set aside, or a note that there was no sweep."""
    if evidence.swept is not None:
        yield ValidityCheck(kind=REJECTED_RATES, level=Level.NOTE, count=len(lr_sweep.rejected(evidence.swept)))
    elif lr_sweep.sweeps(evidence) or evidence.published:
        return
    elif len({s.family for s in evidence.series}) > 1 and evidence.headline:
        yield ValidityCheck(kind=RATE_NOT_IN_INTERVAL, level=Level.NOTE)


CHECK = Check(
    order=13,
    find=find,
    words={
        REJECTED_RATES: "{count} runs at learning rates that a sweep rejected are excluded from "
        "everything except the sweep.",
        RATE_NOT_IN_INTERVAL: "Every model was trained at one learning rate: the choice of the rates is not in "
        "the intervals of families.",
    },
)
