"""Finds comparisons of families in which the probe on raw pixels is more accurate than a model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations

from bench.analysis import gap_series
from bench.analysis.check import Check, grouped
from bench.analysis.comparisons import compared_series, families_of
from bench.analysis.evidence import HEADLINE, Evidence
from bench.analysis.finding import Axis, TrendPoint
from bench.analysis.findings import ValidityCheck
from bench.analysis.frontiers import Gaps, at_compute, of_one_data_set
from bench.core.by_key import by_key
from bench.core.formatting import count, flops_range, join

BELOW_PIXELS = "below raw pixels"
"""Two families are compared where a model has a lower accuracy than raw pixels. `names`: the two families, and the axis
("compute" or "images"); `groups`: the models, by family; `count`: number of x with such a model, out of `limit`; `low`,
`high`: the first and last such x, in FLOP or images."""


def find(evidence: Evidence) -> Iterator[ValidityCheck]:
    """Yield a result for every comparison of two families in which the same probe on raw pixels beats a model. Such
    comparisons are reported, not left out, because how far a network falls behind raw pixels is a result. But if one
    family falls further behind than the other, that is not a lead of the other."""
    if evidence.pixels is None:
        return
    series = of_one_data_set(compared_series(evidence)) if compared_series(evidence) else []
    for pair in combinations(families_of(series), 2):
        gaps = at_compute(evidence, series, *pair, HEADLINE)
        if isinstance(gaps, Gaps):
            yield from _below(pair, gaps.trend, Axis.COMPUTE)
    for line in gap_series.gap_series(evidence) if series else ():
        yield from _below(line.families, tuple(place.trend for place in line.places), Axis.IMAGES)


def _below(families: tuple[str, str], trend: Sequence[TrendPoint], axis: Axis) -> Iterator[ValidityCheck]:
    if places := [p for p in trend if p.below]:
        models = [(name, p.first if name == families[0] else p.second) for p in places for name in p.below]
        yield ValidityCheck(
            kind=BELOW_PIXELS,
            names=(*families, axis),
            count=len(places),
            limit=len(trend),
            low=places[0].x,
            high=places[-1].x,
            groups=grouped(by_key(dict.fromkeys(models))),
        )


def _below_pixels(c: ValidityCheck) -> str:
    first, second, axis = c.names
    ends = dict.fromkeys((c.low or 0.0, c.high or 0.0))
    at = f"{' to '.join(map(count, ends))} images" if axis == Axis.IMAGES else flops_range(c.low or 0.0, c.high or 0.0)
    models = "; ".join(f"{name} ({join(values)})" for name, values in c.groups)
    return (
        f"{first} against {second} at {at}: the pixel baseline beats {models} at {count(c.count)} of "
        f"{count(c.limit)} places, where a difference is none between networks that have learned what is asked."
    )


CHECK = Check(
    order=19,
    find=find,
    words={
        BELOW_PIXELS: _below_pixels,
    },
)
