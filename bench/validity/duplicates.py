"""Test images that the training images hold a copy of."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from bench.analysis.check import Check, names
from bench.analysis.evidence import Evidence
from bench.analysis.findings import Level, ValidityCheck

DUPLICATES = "duplicates"
"""Names (test set,); count: images of which upstream holds a copy; limit: of how many; high: largest change of accuracy
without them. One check per set that was looked at; count 0: none."""


def find(evidence: Evidence) -> Iterator[ValidityCheck]:
    """Test images that upstream holds a copy of, and what accuracies are without them."""
    known = evidence.scores[evidence.scores["num_duplicates"].notna()]
    change = (known["value_without_duplicates"] - known["value"]).abs()
    most = known.assign(change=change).groupby("data", observed=True)[["num_duplicates", "num_test", "change"]].max()
    for data, (copies, tests, largest) in zip(most.index, most.to_numpy(), strict=True):
        yield ValidityCheck(
            kind=DUPLICATES,
            level=Level.NOTE,
            names=(str(data),),
            count=int(copies),
            limit=tests,
            high=None if math.isnan(largest) else float(largest),
        )


def _duplicates(c: ValidityCheck) -> str:
    if not c.count:
        return f"No test image of {names(c)} is a copy of a training image."
    return (
        f"{c.count:,} of {c.limit:,.0f} test images of {names(c)} are copies of training images; without them "
        f"accuracy changes by at most {100 * (c.high or 0):.2f} points."
    )


def _together(results: Sequence[ValidityCheck]) -> list[ValidityCheck]:
    """The sets without any copy are said in one sentence, where the first of them stands."""
    clean = [c for c in results if not c.count]
    named = tuple(name for c in clean for name in c.names)
    return [replace(c, names=named) if c in clean else c for c in results if c.count or c is clean[0]]


CHECK = Check(
    order=23,
    find=find,
    together=_together,
    words={
        DUPLICATES: _duplicates,
    },
)
