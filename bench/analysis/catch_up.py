"""Describes how the accuracy gap between two families changes over images or compute: its slope, and where the fitted
scaling laws of the two families meet."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from bench.analysis import wording
from bench.analysis.budgets import ONE_BUDGET, FamilyBudget
from bench.analysis.finding import TREND_POINTS, Axis, Finding, Item, Reason, TrendPoint, Unit, Verdict
from bench.analysis.scaling_laws import DRAWS, LOSSES, POSSIBLE, STARTS, Law
from bench.core.errors import UserError
from bench.core.formatting import count, flops, points, significant
from bench.core.phrase import phrase
from bench.laws import averaging, fit
from bench.laws.bootstrap import LAW_LEVEL
from bench.laws.extrapolation import forecast
from bench.stats.intervals import t_quantile

CROSSING_REACH = 100.0  # a crossing is searched up to this many times the largest x of the data
RECORD_REACH = 10.0  # intervals of a law are used up to this many times the largest x of the data
GRID_POINTS = 400  # x at which a crossing is searched


# -- findings ----------------------------------------------------------------------------------------------------------


def finding_of(
    question: str,
    families: tuple[str, str],
    axis: Axis,
    slope: float,
    half: float,
    trend: Sequence[TrendPoint],
    evidence: Sequence[Item],
    **more: object,
) -> Finding:
    low, high = slope - half, slope + half
    decided = Verdict.YES if low > 0 else Verdict.NO if high < 0 else Verdict.CANNOT_TELL
    ends = {p.verdict for p in (trend[0], trend[-1])}
    leader = families[0] if slope > 0 else families[1]
    return Finding(
        question=question,
        subject=families,
        axis=axis,
        verdict=decided,
        leader=leader if decided != Verdict.CANNOT_TELL else "",
        reasons=(Reason.WITHIN_INTERVAL,)
        if decided == Verdict.CANNOT_TELL
        else (Reason.ORDER_CHANGES,)
        if ends == {Verdict.YES, Verdict.NO}
        else (),
        quantity="accuracy gained per tenfold",
        unit=Unit.SHARE,
        estimate=slope,
        low=low,
        high=high,
        trend=tuple(trend),
        evidence=tuple(evidence),
        **more,  # type: ignore[arg-type]
    )


@dataclass(frozen=True, kw_only=True)
class Closing(Item):
    """Where the fitted laws (error over x) of two families meet, in their common range or beyond the data. The interval
    is that of the laws, not of one more run of each family.

    Attributes:
        x: compute in FLOP, or number of distinct images, at which they meet; None if they do not meet within
            `CROSSING_REACH` times the largest x of the data.
        low: the smallest x at which they may meet, by the intervals of the laws; None if unknown.
        high: the largest x at which they may meet; None if it is beyond `RECORD_REACH` times the data, or unknown.
        reach: `x` divided by the largest x of the data; 1 inside the data.
        leader: the family that is ahead before x.
        form: name of the laws' functional form.
    """

    x: float | None
    low: float | None
    high: float | None
    reach: float
    leader: str
    form: str


@dataclass(frozen=True, kw_only=True)
class HeldOut(Item):
    """A test of two laws on held-out points: the gap in accuracy, first - second, that the laws predict at the largest
    x when they are refitted without it, and the gap that was observed there.

    Attributes:
        x: the largest x, in FLOP or distinct images.
        predicted, low, high: the predicted gap, and its interval.
        observed, observed_low, observed_high: the observed gap, and its interval from training noise.
    """

    x: float
    predicted: float
    low: float
    high: float
    observed: float
    observed_low: float
    observed_high: float


# -- by the laws -------------------------------------------------------------------------------------------------------


def by_law(first: Law, second: Law) -> list[Item]:
    """Return a `Closing`, which says where the laws of two families meet, and, if both can be refitted without the
    largest x, a `HeldOut`, which says how well they then predict the gap there."""
    items: list[Item] = [_closing(first, second)]
    held = _held_out(first, second)
    return [*items, *([held] if held else [])]


def _closing(first: Law, second: Law) -> Closing:
    """Return the x where the predicted errors of two laws are equal, from the start of the common range up to
    `CROSSING_REACH` times the data; `low` and `high` are the first and last x where the interval of the gap contains
    0."""
    start = max(first.range[0], second.range[0])
    end = max(first.range[1], second.range[1])
    grid = np.geomspace(start, end * CROSSING_REACH, GRID_POINTS)
    gap, half_low, half_high, known = _gap(first, second, grid)
    x = _first_zero(grid, gap)
    inside = known & (grid <= end * RECORD_REACH)
    possible = inside & (gap - half_low <= 0) & (gap + half_high >= 0)
    rows = np.flatnonzero(possible)
    return Closing(
        x=x,
        reach=max(1.0, (x or 0.0) / end),
        low=float(grid[rows[0]]) if len(rows) else None,
        high=float(grid[rows[-1]]) if len(rows) and rows[-1] < np.flatnonzero(inside)[-1] else None,
        leader=first.family if gap[0] > 0 else second.family,
        form=first.within.fit.form.name,
    )


def _gap(first: Law, second: Law, x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return four arrays with an entry for each x: the gap in accuracy that two laws predict, first - second; how far
    its interval reaches below it; how far above it; and whether the interval is known."""
    errors = [np.exp(law.forecast.log_predict(x[None])) for law in (first, second)]
    ends = [law.bands(x).total for law in (first, second)]
    gap = errors[1] - errors[0]
    below = np.hypot(ends[0][:, 1] - errors[0], errors[1] - ends[1][:, 0])
    above = np.hypot(errors[0] - ends[0][:, 0], ends[1][:, 1] - errors[1])
    return gap, below, above, np.isfinite(below) & np.isfinite(above)


def _first_zero(x: np.ndarray, y: np.ndarray) -> float | None:
    changes = np.flatnonzero(np.sign(y[:-1]) * np.sign(y[1:]) < 0)
    if not len(changes):
        return None
    i = int(changes[0])
    share = y[i] / (y[i] - y[i + 1])
    return float(np.exp(np.log(x[i]) + share * np.log(x[i + 1] / x[i])))


def _held_out(first: Law, second: Law) -> HeldOut | None:
    """Return the gap that two laws predict at the largest x when they are refitted without it, and the gap observed
    there; None if a law cannot be refitted.

    Over images, the largest x is each family's own. Over compute, it is the largest that both families have, and points
    beyond it are held out too.
    """
    pair = (first, second)
    tops = [float(law.within.fit.points.x[0].max()) for law in pair]
    if first.axis == Axis.COMPUTE:
        tops = [min(tops)] * 2
    of_first, of_second = _predicted(first, tops[0]), _predicted(second, tops[1])
    if of_first is None or of_second is None:
        return None
    (a, a_low, a_high), (b, b_low, b_high) = of_first, of_second
    observed = [
        float(np.interp(np.log(top), np.log(law.group_means.x), law.group_means.error))
        for law, top in zip(pair, tops, strict=True)
    ]
    gap, seen = b - a, observed[1] - observed[0]
    half = t_quantile(max(1, first.group_means.freedom), LAW_LEVEL) * math.hypot(first.noise, second.noise)
    return HeldOut(
        x=max(tops),
        predicted=gap,
        low=gap - math.hypot(a_high - a, b - b_low),
        high=gap + math.hypot(a - a_low, b_high - b),
        observed=seen,
        observed_low=seen - half,
        observed_high=seen + half,
    )


def _predicted(law: Law, top: float) -> tuple[float, float, float] | None:
    """Return the error that a law predicts at x = `top` when it is refitted without the points from `top` on, and the
    ends of its interval; None if too few points are left."""
    data, form = law.within.fit.points, law.within.fit.form
    earlier = data.take(data.x[0] < top / ONE_BUDGET)
    if len(np.unique(earlier.x[0])) < TREND_POINTS:
        return None
    try:
        made = fit.fit(earlier, form, loss=LOSSES[0], max_starts=STARTS)
        ahead = replace(forecast(earlier, [form], loss=LOSSES[0], half_life=None), fits=(made,))
        fits = [rival for loss in LOSSES for rival in averaging.fits_of(earlier, POSSIBLE, loss=loss)]
        over_forms = averaging.average(fits, shown=made, draws=DRAWS, restarts=0)
        bands = ahead.bands(over_forms, np.array([[top]]))
    except UserError:
        return None
    low, high = bands.total[0]
    return float(bands.y[0]), float(low), float(high)


# -- words -------------------------------------------------------------------------------------------------------------


def say(f: Finding) -> list[str]:
    """Return sentences on a finding about a gap: the gap at both ends of the range, the budget, where the laws meet,
    and the test on held-out points."""
    texts = [f"{f.subject[0]} minus {f.subject[1]}: {wording.trend(f)}."] if f.trend else []
    if budgets := wording.every(f, FamilyBudget):
        seen = ", ".join(f"{b.family} {count(b.images_seen[1])}" for b in budgets)
        texts.append(f"At {flops(budgets[0].flops[0])} each; images seen: {seen}.")
    texts += [_say_closing(f, item) for item in wording.every(f, Closing)]
    return texts + [_say_held_out(f, item) for item in wording.every(f, HeldOut)]


def sentence(f: Finding, *, x: str) -> str:
    return phrase(f"{f.leader} gains ", wording.amount(f), f" on {wording.other(f)} with ten times the {x}")


def _say_closing(f: Finding, item: Closing) -> str:
    other = next(name for name in f.subject if name != item.leader)
    ends = wording.bracket(item.low, item.high, lambda x: wording.place(f, x))
    if item.x is None:
        where = f"do not meet within 100 times the data: {item.leader} stays ahead"
    else:
        beyond = f", {significant(item.reach, 2)} times beyond the data" if item.reach > 1.005 else ""
        where = f"meet at {wording.place(f, item.x)}{beyond}{ends and ' ' + ends}; {other} is ahead from there"
    unknown = ""
    seen = max((b.images_seen[1] for b in wording.every(f, FamilyBudget)), default=0)
    if item.x is not None and f.axis == Axis.IMAGES and item.x > seen:
        unknown = f" At this compute no more than {count(seen)} are seen: it takes more of both."
    return f"The laws ({item.form}) {where}.{unknown}"


def _say_held_out(f: Finding, item: HeldOut) -> str:
    apart = item.observed_low > item.high or item.observed_high < item.low
    observed = points(item.observed, item.observed_low, item.observed_high)
    return (
        f"Held out: without the largest of each family they predicted {points(item.predicted, item.low, item.high)}"
        f" at {wording.place(f, item.x)}; observed {observed}: "
        f"{'missed' if apart else 'the intervals overlap'}."
    )
