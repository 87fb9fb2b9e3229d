"""Which family is ahead at equal compute, and whether the order changes. Nothing is extrapolated.

A family is represented at a budget by its best model there. A model counts at a budget only if it was trained to within
`ONE_BUDGET` of it, or was read below and above it: then it is interpolated, and how far off that may be is part of the
interval. A run that ended below is not carried on: "within" a budget is not "at" it, for the other side may have spent
twice as much. Published networks, of one budget each, can be compared within budgets alone; such an answer says so.

The maximum of several noisy scores is biased upwards (winner's curse); where repeated training gives the noise, every
best score is corrected for it. Two models are compared as two families of one.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise

import numpy as np

from bench.analysis.budgets import ONE_BUDGET, one_budget
from bench.analysis.comparisons import Gap, SizeCurve, below_pixels, unreplicated_noise
from bench.analysis.contrast import contrast, slope_weights
from bench.analysis.evidence import Evidence, Point, Series
from bench.analysis.finding import BeginsLater, Reason, TrendPoint, Verdict
from bench.stats import interpolation
from bench.stats.intervals import SEEDS, UNBOUNDED, Estimate, Samples, mix, seed_error
from bench.stats.levels import p_value
from bench.stats.pareto import FAR_OFF, frontier_bias

BUDGETS = 5
"""Compute levels, evenly spaced in log compute over the common range, at which two families are compared."""
MIN_RANGE_FACTOR = 1.25  # a common range narrower than this factor is one budget, not a range
SELECTION_DRAWS = 1000  # draws behind a correction for selection
INTERPOLATION = "interpolation"  # a source of error beside those of `bench.stats.intervals`


@dataclass(frozen=True, kw_only=True)
class Reading:
    """The points that a score at a place of the axis was made of.

    Attributes:
        label: the model. parts: points and their weights, which add up to 1.
        slack: how far off the interpolation between them may be, in accuracy.
        bias: what was added to the score, in accuracy, for being the best of several.
    """

    label: str
    parts: tuple[tuple[float, Point], ...]
    slack: float = 0.0
    bias: float = 0.0


Rival = tuple[Reading, Samples]
Side = Callable[[float], list[Rival]]
"""The models of a family at a place of the axis."""


@dataclass(frozen=True, kw_only=True)
class Gaps:
    """Two families over their common range. `mean` is along it, `slope` the change per tenfold x by least squares, or
    None for one place; `paired` on test images. `corrected`: for selecting the best models. `begins`:
    why the range begins where it does, if not with the first run. `carried`: within budgets, not at them."""

    first: str
    second: str
    gaps: tuple[Gap, ...]
    mean: Estimate
    corrected: bool
    paired: bool = False
    begins: BeginsLater | None = None
    carried: bool = False
    slope: Estimate | None = None

    @property
    def accuracy(self) -> float:
        """Around which accuracy the gaps lie, on average."""
        return float(np.mean([gap.accuracy for gap in self.gaps]))

    @property
    def decided(self) -> list[Gap]:
        """The differences beyond their interval."""
        return [gap for gap in self.gaps if gap.verdict != Verdict.CANNOT_TELL]

    @property
    def changes(self) -> bool:
        """Whether the gap depends on x: its slope over log x differs from zero beyond its interval, or its ends have
        different signs and one of them is beyond its own."""
        if self.slope is None:
            return False
        if abs(self.slope.value) > math.hypot(self.slope.half, self.slope_unreplicated):
            return True
        values = [gap.estimate.value for gap in (self.gaps[0], self.gaps[-1])]
        decided = [gap.verdict != Verdict.CANNOT_TELL for gap in (self.gaps[0], self.gaps[-1])]
        return values[0] * values[1] < 0 and any(decided)

    @property
    def slope_unreplicated(self) -> float:
        """What chance between single training runs may add to the slope; 0 where training was repeated."""
        if self.slope is None or SEEDS not in self.slope.excluded:
            return 0.0
        return float(np.linalg.norm(slope_weights([gap.x for gap in self.gaps]))) * unreplicated_noise(self.accuracy)

    @property
    def p(self) -> float:
        """How often equal families would show a mean or a slope as far from 0 as these: two tests, the smaller p
        doubled (Bonferroni). Single places are not tested for themselves."""
        beside = unreplicated_noise(self.accuracy) if SEEDS in self.mean.excluded else 0.0
        of_mean = p_value(self.mean, beside=beside)
        if self.slope is None:
            return of_mean
        return min(1.0, 2 * min(of_mean, p_value(self.slope, beside=self.slope_unreplicated)))

    @property
    def crossing(self) -> tuple[float, float] | None:
        """The interval of x in which the order changes: the last place where one family is ahead beyond the interval
        and the next where the other is. None unless the first and the last decided places differ."""
        decided = self.decided
        for before, after in pairwise(decided):
            if before.verdict != after.verdict:
                return (before.x, after.x) if decided[0].verdict != decided[-1].verdict else None
        return None

    @property
    def p_of_crossing(self) -> float:
        """How often equal families would each be ahead somewhere as surely as here: the larger p of the surest place of
        each, times the number of places; 1 without a crossing."""
        if self.crossing is None:
            return 1.0
        surest: dict[Verdict, float] = {}
        for gap in self.decided:
            beside = unreplicated_noise(gap.accuracy) if SEEDS in gap.estimate.excluded else 0.0
            surest[gap.verdict] = min(surest.get(gap.verdict, 1.0), p_value(gap.estimate, beside=beside))
        return min(1.0, len(self.gaps) * max(surest.values()))

    @property
    def trend(self) -> tuple[TrendPoint, ...]:
        return tuple(gap.trend for gap in self.gaps)


# -- comparing ---------------------------------------------------------------------------------------------------------


def at_compute(evidence: Evidence, series: Sequence[Series], first: str, second: str, measure: str) -> Gaps | Reason:
    """Two families' best models at equal compute, or why they cannot be compared."""
    sides = [[s for s in series if s.family == name] for name in (first, second)]
    low, high = common_range(*sides)
    if not 0 < MIN_RANGE_FACTOR * low <= high:
        return Reason.NO_COMMON_RANGE
    gaps = along_compute(evidence, sides[0], sides[1], (first, second), measure)
    if gaps is None or len(gaps.gaps) < 2:
        return Reason.TOO_FEW_SCORES
    return replace(gaps, begins=_begins_later(evidence, sides, (first, second)))


def _begins_later(evidence: Evidence, sides: Sequence[Sequence[Series]], names: tuple[str, str]) -> BeginsLater | None:
    """The families for whose sake two begin to be compared above the least compute that both were trained with."""
    variants = [{s.last.data for s in side} for side in sides]
    on_axis = evidence.on_axis("compute", every=True)
    trained = [
        [s for s in on_axis if s.family == name and s.last.data in used]
        for name, used in zip(names, variants, strict=True)
    ]
    low, at = common_range(*trained)[0], common_range(*sides)[0]
    firsts = [min(s.points[0].train_flops for s in side) for side in sides]
    late = tuple(name for name, first in zip(names, firsts, strict=True) if first > ONE_BUDGET * low)
    return BeginsLater(families=late, low=low, at=at) if at > ONE_BUDGET * low else None


def common_range(first: Sequence[Series], second: Sequence[Series]) -> tuple[float, float]:
    """The least and the most FLOPs that both sides were trained with; the first is larger where there is none."""
    low = max(min(s.points[0].train_flops for s in side) for side in (first, second))
    return low, min(max(s.last.train_flops for s in side) for side in (first, second))


def along_compute(
    evidence: Evidence, first: Sequence[Series], second: Sequence[Series], names: tuple[str, str], measure: str
) -> Gaps | None:
    """The best models of two sides at `BUDGETS` levels of their common range of compute, or at one where it is narrower
    than `MIN_RANGE_FACTOR`. None where there is no such range, or nothing was scored there."""
    low, high = common_range(first, second)
    if not 0 < low <= high * ONE_BUDGET:
        return None
    places = np.geomspace(low, high, BUDGETS) if low * MIN_RANGE_FACTOR <= high else np.array([high])
    carried = evidence.published
    best = [partial(_readings, evidence, side, measure, carried=carried) for side in (first, second)]
    gaps = _gaps(evidence, places, *names, measure, best)
    return gaps and replace(gaps, carried=carried)


def at_images(evidence: Evidence, curves: Sequence[SizeCurve], first: str, second: str, measure: str) -> Gaps | None:
    """Two families' best models of the data-size axis at equal numbers of distinct images."""
    sides = [[c for c in curves if c.family == name] for name in (first, second)]
    sizes = [{p.unique_images for c in side for p in c.points} for side in sides]
    shared = sorted(sizes[0] & sizes[1])
    if len(shared) < 2:
        return None

    def at(side: Sequence[SizeCurve], x: float) -> list[Rival]:
        return [
            (Reading(label=c.label, parts=((1.0, p),)), s)
            for c in side
            for p in c.points
            if p.unique_images == x and (s := evidence.samples(p, measure)) is not None
        ]

    gaps = _gaps(evidence, shared, first, second, measure, [partial(at, side) for side in sides])
    return gaps if gaps is not None and len(gaps.gaps) > 1 else None


def _gaps(
    evidence: Evidence,
    places: Sequence[float] | np.ndarray,
    first: str,
    second: str,
    measure: str,
    sides: Sequence[Side],
) -> Gaps | None:
    gaps, readings = [], []
    for x in places:
        a, b = (_best(evidence, side(float(x)), measure) for side in sides)
        made = _sum(evidence, [(1.0, a[0], b[0])], measure) if a and b else None
        if a and b and made:
            e, paired = made
            gaps.append(
                Gap(
                    x=float(x),
                    first_model=a[0].label,
                    second_model=b[0].label,
                    estimate=e,
                    accuracy=(a[1].mean + b[1].mean) / 2,
                    paired=paired,
                    below=below_pixels(evidence, ((first, a[0].parts), (second, b[0].parts)), measure),
                )
            )
            readings.append((a[0], b[0]))
    along = _sum(evidence, [(1 / len(readings), a, b) for a, b in readings], measure) if readings else None
    if along is None:
        return None
    mean, paired = along
    slope = None
    if len(gaps) > 1:
        weights = slope_weights([gap.x for gap in gaps]).tolist()
        sloped = _sum(evidence, [(w, a, b) for w, (a, b) in zip(weights, readings, strict=True)], measure)
        slope = replace(sloped[0], bounds=UNBOUNDED) if sloped else None
    corrected = evidence.pool(measure) is not None  # some training was repeated
    return Gaps(
        first=first, second=second, gaps=tuple(gaps), mean=mean, corrected=corrected, paired=paired, slope=slope
    )


def _sum(
    evidence: Evidence, places: Sequence[tuple[float, Reading, Reading]], measure: str
) -> tuple[Estimate, bool] | None:
    """A weighted sum of differences over places, corrected for the choice of the best models and with the error of
    interpolation; whether test images were paired. Along one curve interpolation errs to one side, so that its errors
    add up in a mean; where weights have both signs they are taken as independent."""
    parts = [
        [(weight * share, point) for weight, *pair in places for share, point in pair[which].parts] for which in (0, 1)
    ]
    made = contrast(evidence, parts[0], parts[1], measure)
    if made is None:
        return None
    e, paired = made
    value = e.value + sum(weight * (a.bias - b.bias) for weight, a, b in places)
    slacks = [[weight * pair[which].slack for weight, *pair in places] for which in (0, 1)]
    off = math.hypot(*(max(abs(math.fsum(side)), math.hypot(*side)) for side in slacks))
    margins = {**e.margins, INTERPOLATION: off} if off else e.margins
    return replace(e, value=value, margins=margins), paired


def _best(evidence: Evidence, rivals: Sequence[Rival], measure: str) -> Rival | None:
    """The best of some models, its scores corrected for selection bias."""
    if not rivals:
        return None
    errors = np.array([1 - samples.mean for _, samples in rivals])
    reading, best = rivals[int(errors.argmin())]
    pooled = evidence.pool(measure)
    noise = np.array([seed_error(samples, pooled)[0] for _, samples in rivals])
    if len(rivals) == 1 or pooled is None or not np.isfinite(noise).all():
        return reading, best
    near = np.flatnonzero(errors <= errors.min() + FAR_OFF * noise).tolist()
    bias = float(frontier_bias(errors, noise, [near], draws=SELECTION_DRAWS)[0])  # of an error: negative
    return replace(reading, bias=bias), replace(best, values_SD=best.values_SD + bias)


def _readings(evidence: Evidence, side: Sequence[Series], measure: str, flops: float, *, carried: bool) -> list[Rival]:
    """The family's models at this compute, interpolated in log compute where they were read on both sides of it and not
    at it; `carried`: also those whose longest run ended below, and without slack, which no curve of bests shows."""
    rivals: list[Rival] = []
    for series in side:
        at = [p for p in series.points if one_budget(p.train_flops, flops)]
        ended = [series.last] if carried and series.last.train_flops <= flops else []
        if (at or ended) and (read := evidence.samples((end := (at or ended)[-1]), measure)) is not None:
            rivals.append((Reading(label=series.label, parts=((1.0, end),)), read))
            continue
        for a, b in pairwise(series.points):
            if a.train_flops <= flops <= b.train_flops:
                weight = math.log(flops / a.train_flops) / math.log(b.train_flops / a.train_flops)
                weight = min(1.0, max(0.0, weight))
                at_a, at_b = evidence.samples(a, measure), evidence.samples(b, measure)
                mixed = mix(at_a, at_b, weight) if at_a and at_b else None
                if mixed is not None:
                    slack = 0.0 if carried else _slack(evidence, series, measure, flops)
                    parts = ((1 - weight, a), (weight, b))
                    rivals.append((Reading(label=series.label, parts=parts, slack=slack), mixed))
                break
    return rivals


def best_within(evidence: Evidence, side: Sequence[Series], measure: str, flops: float) -> float | None:
    """The accuracy of a side's best model within this compute, runs that ended below it among them: a curve of bests,
    which no comparison at equal compute uses. None where none was scored."""
    return max((read.mean for _, read in _readings(evidence, side, measure, flops, carried=True)), default=None)


def _slack(evidence: Evidence, series: Series, measure: str, flops: float) -> float:
    """How far off the interpolation of a model's accuracy at this compute may be. A model with two budgets is taken to
    bend as much as the study's other models do at most."""
    log_x, y = _curve(evidence, series, measure)
    others = [_curve(evidence, s, measure) for s in evidence.on_axis("compute")] if len(log_x) < 3 else []
    bends = [bend for curve in others for bend in interpolation.curvatures(*curve)[0].tolist()]
    return interpolation.error(log_x, y, math.log(flops), usual=max(bends, default=None))


def _curve(evidence: Evidence, series: Series, measure: str) -> tuple[list[float], list[float]]:
    """A model's accuracy over log compute."""
    known = [(math.log(p.train_flops), s.mean) for p in series.points if (s := evidence.samples(p, measure))]
    return [x for x, _ in known], [y for _, y in known]


# -- families ----------------------------------------------------------------------------------------------------------


def of_one_data_set(series: Sequence[Series]) -> list[Series]:
    """The points that were pre-trained on the data set that most were: families are compared on equal data."""
    used = Counter(s.last.data for s in series).most_common(1)
    return [s for s in series if s.last.data == used[0][0]]
