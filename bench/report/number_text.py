"""The numbers of findings as text: estimates with intervals, trends, places on an axis."""

from __future__ import annotations

from collections.abc import Callable

from bench.analysis.finding import Axis, Finding, Question, Unit
from bench.core.formatting import count, flops, percent, points, signed, significant


def number(f: Finding) -> str:
    """The estimate with its interval; where it varies along the range, the trend from end to end."""
    if f.estimate is None:
        if f.question in (Question.ORDER_OVER_COMPUTE, Question.ORDER_OVER_IMAGES) and f.low is not None:
            return f"between {place(f, f.low)} and {place(f, f.high)}"
        return trend(f)
    low, high = f.low, f.high
    if f.question is Question.SATURATED:
        change, best, worst = (2**-v - 1 for v in (f.estimate, _or_nan(high), _or_nan(low)))
        return f"{signed(change)} % [{signed(best)}, {signed(worst)}]"
    if f.question is Question.HYBRID_ADVANTAGE_SHRINKS:
        return points(-f.estimate, -_or_nan(high), -_or_nan(low))
    if f.unit is Unit.SHARE:
        return points(f.estimate, _or_nan(low), _or_nan(high))
    if f.unit is Unit.FLOP:
        return flops(f.estimate) + bracket(low, high, flops, unit=flops(f.estimate).partition(" ")[2])
    if f.unit is Unit.IMAGES:
        return f"{count(f.estimate)} images" + bracket(low, high, count)
    if f.unit is Unit.TIMES:
        return f"{significant(f.estimate)} ×" + bracket(low, high, significant)
    return f"{f.estimate:g}" + bracket(low, high, significant)


def magnitude(f: Finding) -> float | None:
    """What `number` begins with, before it is rounded; None of a trend or a range."""
    if f.estimate is None:
        return None
    if f.question is Question.SATURATED:
        return float(2**-f.estimate - 1)
    return -f.estimate if f.question is Question.HYBRID_ADVANTAGE_SHRINKS else f.estimate


def trend(f: Finding) -> str:
    """ "+31.0 → −1.4 points from 21.2 GFLOPs to 444 GFLOPs"; "" without a trend."""
    if len(f.trend) < 2:
        return ""
    first, last = f.trend[0], f.trend[-1]
    where = f"from {between(f, first.x, last.x, 'to')}"
    if f.unit is Unit.TIMES or f.question is Question.COMPUTE_TO_MATCH:
        return f"{significant(first.estimate)} → {significant(last.estimate)} × {where}"
    return f"{signed(first.estimate)} → {signed(last.estimate)} points {where}"


def between(f: Finding, low: float | None, high: float | None, joint: str) -> str:
    """Two values of x; a common unit is written once."""
    first, last = place(f, low), place(f, high)
    same = first.partition(" ")[2] == last.partition(" ")[2]
    return f"{first.partition(' ')[0] if same else first} {joint} {last}"


def place(f: Finding, x: float | None) -> str:
    if x is None:
        return "–"
    if f.axis is Axis.ACCURACY:
        return f"{percent(x)} %"
    return f"{count(x)} images" if f.axis is Axis.IMAGES else flops(x)


def bracket(low: float | None, high: float | None, show: Callable[[float], str], unit: str = "") -> str:
    if low is None and high is None:
        return ""
    ends = ["…" if end is None else show(end) for end in (low, high)]
    units = {end.partition(" ")[2] for end in ends}
    if unit and units == {unit}:  # once, with the estimate
        ends = [end.partition(" ")[0] for end in ends]
    return f" [{', '.join(ends)}]"


def _or_nan(value: float | None) -> float:
    return float("nan") if value is None else value
