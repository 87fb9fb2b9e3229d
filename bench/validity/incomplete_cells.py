"""Finds damaged records, cells (training runs) that diverged or failed, and cells that were begun and not finished."""

from __future__ import annotations

from collections.abc import Iterator

from bench.analysis.check import Check
from bench.analysis.evidence import Evidence
from bench.analysis.findings import ValidityCheck

DAMAGED_RECORD = "damaged record"
"""A record is damaged and was left out. `names`: its cell; `message`: the reason."""
UNSUCCESSFUL = "unsuccessful"
"""A cell did not complete, so means are over other seeds. `names`: the cell and its status; `message`: the reason."""
UNFINISHED = "unfinished"
"""`count`: number of cells that were begun and not finished."""


def find(evidence: Evidence) -> Iterator[ValidityCheck]:
    """Yield a result for every damaged record and every unsuccessful cell, and one for all unfinished cells."""
    for damaged in evidence.records.damaged:
        yield ValidityCheck(kind=DAMAGED_RECORD, names=(damaged.directory,), message=damaged.reason)
    for record in evidence.records.records:
        if record.status != "complete":
            yield ValidityCheck(kind=UNSUCCESSFUL, names=(record.directory, record.status), message=record.reason or "")
    if evidence.records.unfinished:
        yield ValidityCheck(kind=UNFINISHED, count=len(evidence.records.unfinished))


CHECK = Check(
    order=1,
    find=find,
    words={
        DAMAGED_RECORD: "Excluded damaged record: {names} ({message}).",
        UNSUCCESSFUL: lambda c: f"{' '.join(c.names)}: {c.message or 'no reason given'}.",
        UNFINISHED: "{count} runs are not finished. vit-bench status shows why; the same command continues.",
    },
)
