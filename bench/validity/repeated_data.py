"""Finds points (a model at one budget) that were trained on each image many times."""

from __future__ import annotations

from collections.abc import Iterator

from bench.analysis.check import Check
from bench.analysis.evidence import Evidence, PointKey
from bench.analysis.finding import Axis
from bench.analysis.findings import Level, ValidityCheck
from bench.laws.forms import MAX_EPOCHS

REPEATED_DATA = "repeated data"
"""Points saw each image more than `limit` times, so that more compute does not mean more data. `names`: the axis;
`count`: number of these points; `high`: the most times. On the axis of images, where this is intended, its level is
NOTE."""


def find(evidence: Evidence) -> Iterator[ValidityCheck]:
    """Yield a result for each axis (compute, images) that has points trained for more than `MAX_EPOCHS` passes over
    their images."""
    counted: set[PointKey] = set()
    for name, axis, level in (("compute", Axis.COMPUTE, Level.WARNING), ("data_size", Axis.IMAGES, Level.NOTE)):
        points = [p for s in evidence.on_axis(name) for p in s.points if p.epochs > MAX_EPOCHS and p.key not in counted]
        counted |= {p.key for p in points}
        if points:
            yield ValidityCheck(
                kind=REPEATED_DATA,
                level=level,
                names=(axis,),
                count=len(points),
                limit=MAX_EPOCHS,
                high=max(p.epochs for p in points),
            )


CHECK = Check(
    order=5,
    find=find,
    words={
        REPEATED_DATA: "On the {names} axis, {count} points used each image more than {limit:g} times (up "
        "to {high_text}): there, more compute does not mean more distinct data.",
    },
)
