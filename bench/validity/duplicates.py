"""Finds test images that have a copy among the pre-training images."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from bench.analysis.check import Check, names
from bench.analysis.evidence import Evidence
from bench.analysis.findings import Level, ValidityCheck

DUPLICATES = "duplicates"
"""A test set was searched for copies of pre-training images. `names`: the test set; `count`: number of its images of
which the pre-training set holds a copy, out of `limit`; `high`: largest change of accuracy without these images."""


def find(evidence: Evidence) -> Iterator[ValidityCheck]:
    """Yield a result for each test set that was searched for copies of pre-training images."""
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
    """Merge the results of all test sets without copies into one, at the position of the first of them."""
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
