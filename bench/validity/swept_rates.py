"""Finds runs at learning rates that a sweep rejected, and families that are compared although no rates were swept."""

from __future__ import annotations

from collections.abc import Iterator

from bench.analysis import lr_sweep
from bench.analysis.check import Check
from bench.analysis.evidence import Evidence
from bench.analysis.findings import Level, ValidityCheck

REJECTED_RATES = "rejected rates"
"""`count`: number of runs at learning rates that a sweep did not choose. They are used for the sweep only."""
RATE_NOT_IN_INTERVAL = "rate not in interval"
"""Families are compared whose models were trained at one learning rate each, so that no interval includes the choice of
the rate."""


def find(evidence: Evidence) -> Iterator[ValidityCheck]:
    """Yield one result on the runs at learning rates that a sweep rejected; if there was no sweep and families are
    compared, yield one that says that each model was trained at one rate."""
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
