"""Finds out whether the records of one study come from different commits, machines or numerical precisions."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from bench.analysis.check import Check
from bench.analysis.evidence import Evidence
from bench.analysis.findings import Level, ValidityCheck
from bench.study.record import Record

MIXED = "mixed"
"""Records differ in something, so times are not comparable and scores may differ slightly. `names`: what differs
("commit", "cpu", "accelerator", "device", "threads", "dtype" or "evaluation dtype"); `groups`: its values."""
DIRTY_TREE = "dirty tree"
"""Some records were made with uncommitted changes, so that their commit may not reproduce them."""
NOT_TO_BE_MIXED: tuple[tuple[str, Callable[[Record], object]], ...] = (
    ("commit", lambda record: record.environment.commit and record.environment.commit[:10]),
    ("cpu", lambda record: record.environment.cpu),
    ("accelerator", lambda record: record.environment.accelerator),
    ("device", lambda record: record.execution.device),
    ("threads", lambda record: record.execution.threads),
    ("dtype", lambda record: record.execution.dtype if record.model.params else None),  # no network: no precision
    ("evaluation dtype", lambda record: _evaluated_in(record)),
)


def find(evidence: Evidence) -> Iterator[ValidityCheck]:
    """Yield a result for each property in `NOT_TO_BE_MIXED` in which records differ, and one if some were made with
    uncommitted changes. Versions of packages, ranks and modes of compilation are not compared; the report's page lists
    them under Provenance."""
    records = evidence.records.records
    for name, read in NOT_TO_BE_MIXED:
        values = tuple(sorted({str(value) for record in records if (value := read(record)) is not None}))
        if len(values) > 1:
            yield ValidityCheck(kind=MIXED, names=(name,), groups=(("", values),))
    if any(record.environment.dirty for record in records):
        yield ValidityCheck(kind=DIRTY_TREE, level=Level.NOTE)


def _evaluated_in(record: Record) -> str | None:
    """Return the precision in which a record's features and logits were computed in evaluation; None if nothing was
    evaluated by this project. Old records, which do not name it, used float32."""
    judged = record.model.params and record.source is None and any(row.scores for row in record.horizons)
    return (record.execution.evaluation_dtype or "float32") if judged else None


CHECK = Check(
    order=7,
    find=find,
    words={
        MIXED: "Records mix values of {names} ({groups}): times are not comparable, and scores may differ slightly.",
        DIRTY_TREE: "Some records were made with uncommitted changes, so their commit may not reproduce them.",
    },
)
