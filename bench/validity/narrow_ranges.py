"""Finds ranges of compute or of images that are too short for a trend."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from bench.analysis.check import Check, names
from bench.analysis.comparisons import size_curves
from bench.analysis.evidence import Evidence
from bench.analysis.findings import ValidityCheck
from bench.analysis.ladders import is_ladder
from bench.core.formatting import count, flops, significant

NARROW_COMPUTE = "narrow compute"
"""A family's range of compute is too short. `names`: the family; `low`, `high`: the range, in FLOP; `limit`: powers of
ten that a trend needs."""
NARROW_IMAGES = "narrow images"
"""A model's range of distinct images is too short. `names`: the model; `low`, `high`: the range; `limit`: powers of ten
that a trend needs."""
MIN_DECADES = 1.5  # powers of ten that a trend needs
NO_RANGE = 1.25  # a family whose compute spans at most this factor was trained at one budget on purpose


def find(evidence: Evidence) -> Iterator[ValidityCheck]:
    """Yield a result for every range of a family's compute, or of a model's images, that is too short for a trend. A
    family's compute is left out if it is all at one budget, or if the study evaluates nothing on target sets. For a
    ladder, which tests its own trend, nothing is yielded."""
    if is_ladder(evidence):
        return
    by_family: dict[str, list[float]] = {}
    for series in evidence.on_axis("compute") if evidence.headline else ():
        by_family.setdefault(series.family, []).extend(p.train_flops for p in series.points if p.train_flops > 0)
    for family, spent in by_family.items():
        low, high = min(spent, default=1.0), max(spent, default=1.0)
        if NO_RANGE * low < high < 10**MIN_DECADES * low:
            yield ValidityCheck(kind=NARROW_COMPUTE, names=(family,), low=low, high=high, limit=MIN_DECADES)
    for curve in size_curves(evidence):
        if curve.decades < MIN_DECADES:
            yield ValidityCheck(
                kind=NARROW_IMAGES,
                names=(curve.label,),
                low=curve.points[0].unique_images,
                high=curve.points[-1].unique_images,
                limit=MIN_DECADES,
            )


def _narrow(c: ValidityCheck, x: Callable[[float], str]) -> str:
    assert c.low and c.high
    return (
        f"{names(c)}: {x(c.low)} to {x(c.high)} is a factor of {significant(c.high / c.low, 2)}; a trend needs at "
        f"least {significant(10 ** (c.limit or 0), 2)}."
    )


CHECK = Check(
    order=4,
    find=find,
    words={
        NARROW_COMPUTE: lambda c: _narrow(c, flops),
        NARROW_IMAGES: lambda c: _narrow(c, lambda x: f"{count(x)} images"),
    },
)
