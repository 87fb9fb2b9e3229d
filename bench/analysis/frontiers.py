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
from bench.analysis.comparisons import (
    Gap,
    SizeCurve,
    below_pixels,
    independent_difference,
    on_the_same_images,
)
from bench.analysis.evidence import Evidence, Point, Series
from bench.analysis.finding import BeginsLater, Reason, TrendPoint, Verdict
from bench.stats import interpolation
from bench.stats.intervals import Estimate, Samples, mix, seed_error
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
    """

    label: str
    parts: tuple[tuple[float, Point], ...]
    slack: float = 0.0


Rival = tuple[Reading, Samples]
Side = Callable[[float], list[Rival]]
"""The models of a family at a place of the axis."""


@dataclass(frozen=True, kw_only=True)
class Gaps:
    """Two families over their common range. `mean` is along it, `paired` on test images. `corrected`: for selecting the
    best models. `begins`: why the range begins where it does, if not with the first run. `carried`: within budgets, not
    at them."""

    first: str
    second: str
    gaps: tuple[Gap, ...]
    mean: Estimate
    corrected: bool
    paired: bool = False
    begins: BeginsLater | None = None
    carried: bool = False

    @property
    def accuracy(self) -> float:
        """Around which accuracy the gaps lie, on average."""
        return float(np.mean([gap.accuracy for gap in self.gaps]))

    @property
    def decided(self) -> list[Gap]:
        """Those beyond their interval."""
        return [gap for gap in self.gaps if gap.verdict != Verdict.CANNOT_TELL]

    @property
    def changes(self) -> bool:
        """Whether the gap depends on x: its slope over log x differs from zero beyond its interval, or its ends have
        different signs and one of them is beyond its own. Places count as independent; they share seeds, draws and test
        images, whose part in a slope cancels: equal families seem to change in one study of a hundred."""
        if len(self.gaps) < 2:
            return False
        log_x = np.log([gap.x for gap in self.gaps])
        weights = (log_x - log_x.mean()) / ((log_x - log_x.mean()) ** 2).sum()
        values = np.array([gap.estimate.value for gap in self.gaps])
        halves = np.array([gap.half for gap in self.gaps])
        if abs(weights @ values) > math.sqrt((weights**2) @ (halves**2)):
            return True
        return bool(values[0] * values[-1] < 0 and (np.abs(values) > halves)[[0, -1]].any())

    @property
    def crossing(self) -> tuple[float, float] | None:
        """Where the order changes, as an interval of x: the last place where one family is ahead beyond the interval
        and the next where the other is. None unless the first and the last decided places differ."""
        decided = self.decided
        for before, after in pairwise(decided):
            if before.verdict != after.verdict:
                return (before.x, after.x) if decided[0].verdict != decided[-1].verdict else None
        return None

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
    gaps, readings, samples = [], [], []
    for x in places:
        a, b = (_best(evidence, side(float(x)), measure) for side in sides)
        e = independent_difference(evidence, a[1], b[1], measure) if a and b else None
        if a and b and e:
            e, paired = _with_images_and_slack(evidence, e, [(a[0], b[0])], measure)
            models, accuracy = (a[0].label, b[0].label), (a[1].mean + b[1].mean) / 2
            gaps.append(
                Gap(
                    x=float(x),
                    first_model=models[0],
                    second_model=models[1],
                    estimate=e,
                    accuracy=accuracy,
                    paired=paired,
                    below=below_pixels(evidence, ((first, a[0].parts), (second, b[0].parts)), measure),
                )
            )
            samples.append((a[1], b[1]))
            readings.append((a[0], b[0]))
    if not gaps:
        return None
    mean = independent_difference(evidence, _along([a for a, _ in samples]), _along([b for _, b in samples]), measure)
    if mean is None:
        return None
    mean, paired = _with_images_and_slack(evidence, mean, readings, measure)
    corrected = evidence.pool(measure) is not None  # some training was repeated
    return Gaps(first=first, second=second, gaps=tuple(gaps), mean=mean, corrected=corrected, paired=paired)


def _with_images_and_slack(
    evidence: Evidence, e: Estimate, readings: Sequence[tuple[Reading, Reading]], measure: str
) -> tuple[Estimate, bool]:
    """The mean difference over places with test images paired where they can be, and with the error of interpolation;
    whether they were paired. Along one curve interpolation errs to one side, so that its errors are averaged."""
    number = len(readings)
    signed = [(sign, side) for pair in readings for sign, side in zip((1.0, -1.0), pair, strict=True)]
    parts = [(sign * weight / number, point) for sign, side in signed for weight, point in side.parts]
    paired = on_the_same_images(evidence, e, parts, measure)
    e = paired or e
    slacks = [sum(pair[which].slack for pair in readings) / number for which in (0, 1)]
    if any(slacks):
        e = replace(e, margins={**e.margins, INTERPOLATION: math.hypot(*slacks)})
    return e, paired is not None


def _best(evidence: Evidence, rivals: Sequence[Rival], measure: str) -> Rival | None:
    """The best of some models, its scores corrected for selection bias."""
    if not rivals:
        return None
    errors = np.array([1 - samples.mean for _, samples in rivals])
    label, best = rivals[int(errors.argmin())]
    pooled = evidence.pool(measure)
    noise = np.array([seed_error(samples, pooled)[0] for _, samples in rivals])
    if len(rivals) == 1 or pooled is None or not np.isfinite(noise).all():
        return label, best
    near = np.flatnonzero(errors <= errors.min() + FAR_OFF * noise).tolist()
    bias = float(frontier_bias(errors, noise, [near], draws=SELECTION_DRAWS)[0])  # of an error: negative
    return label, replace(best, values_SD=best.values_SD + bias)


def _readings(evidence: Evidence, side: Sequence[Series], measure: str, flops: float, *, carried: bool) -> list[Rival]:
    """The family's models at this compute, interpolated in log compute where they were read on both sides of it and not
    at it; `carried`: also those whose longest run ended below."""
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
                    slack = _slack(evidence, series, measure, flops)
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


def _along(parts: Sequence[Samples]) -> Samples:
    """The mean along the range: the test images are the same everywhere, so their error does not shrink."""
    result = parts[0]
    for number, part in enumerate(parts[1:], start=1):
        mixed = mix(result, part, 1 / (number + 1))
        result = result if mixed is None else mixed
    return result


# -- families ----------------------------------------------------------------------------------------------------------


def of_one_data_set(series: Sequence[Series]) -> list[Series]:
    """Those that were pre-trained on the data set that most were: families are compared on equal data."""
    used = Counter(s.last.data for s in series).most_common(1)
    return [s for s in series if s.last.data == used[0][0]]
