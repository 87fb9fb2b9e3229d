"""Compares two families at equal compute: which is ahead, and whether the order changes. Nothing is extrapolated.

A family is represented at a budget by its best model there. A model counts at a budget only if it was trained to within
`ONE_BUDGET` of it, or was evaluated below and above it. In the latter case its accuracy is interpolated, and the
possible error of interpolation is part of the interval. A run that ended at less compute does not count at a larger
budget, because the other side may have spent twice as much. Published networks have one budget each, so they are also
counted at all larger budgets; an answer that rests on this says so.

If a family's best model was not trained up to a budget, and the models that were are worse there than that one was
before, by more than chance, the family has no representative at this budget: more compute spent on its best model would
have given more. Such a budget is left out, because the gap there would be that of the study's design.

The maximum of several noisy scores is biased upwards (winner's curse). If repeated training shows how large the noise
is, every best score is corrected for this. Two models are compared as two families with one model each.
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
from bench.analysis.finding import BeginsLater, BestAbsent, Reason, TrendPoint, Verdict
from bench.stats import interpolation
from bench.stats.intervals import SEEDS, UNBOUNDED, Estimate, Samples, mix, seed_error
from bench.stats.levels import p_value
from bench.stats.pareto import FAR_OFF, frontier_bias

BUDGETS = 5
"""Compute levels, evenly spaced in log compute over the common range, at which two families are compared."""
MIN_RANGE_FACTOR = 1.25  # a common range narrower than this factor is treated as a single budget
SELECTION_DRAWS = 1000  # simulated repetitions behind a correction for selection bias
INTERPOLATION = "interpolation"  # a source of error in addition to those of `bench.stats.intervals`


@dataclass(frozen=True, kw_only=True)
class Reading:
    """How the score of a model at one x was computed from its points.

    Attributes:
        label: name of the model.
        parts: (weight, point), whose weights add up to 1: one point at this x, or two points that the score is
            interpolated between.
        slack: possible error of the interpolation, in accuracy.
        bias: correction that was added to the score, in accuracy, because the model was picked as the best of several.
    """

    label: str
    parts: tuple[tuple[float, Point], ...]
    slack: float = 0.0
    bias: float = 0.0


Rival = tuple[Reading, Samples]
Side = Callable[[float], list[Rival]]
"""x -> the models of one side (a family or a model) at this x, with their scores."""


@dataclass(frozen=True, kw_only=True)
class Gaps:
    """The accuracy gap between two families, first - second, over their common range of x (compute or distinct images).

    Attributes:
        first, second: names of the families.
        gaps: the gap at each x that was compared.
        mean: mean of the gaps.
        corrected: whether scores were corrected for picking the best model.
        paired: whether test images were compared one by one.
        begins: if the range begins above the smallest common x, the families that have not begun to learn below it.
        absent: the best models of a family that were not trained to some of the budgets, which were left out.
        carried: whether models also count at budgets larger than their own (published networks).
        slope: change of the gap per tenfold x by least squares; None for a single x.
    """

    first: str
    second: str
    gaps: tuple[Gap, ...]
    mean: Estimate
    corrected: bool
    paired: bool = False
    begins: BeginsLater | None = None
    absent: tuple[BestAbsent, ...] = ()
    carried: bool = False
    slope: Estimate | None = None

    @property
    def accuracy(self) -> float:
        """Mean accuracy of both families over all gaps."""
        return float(np.mean([gap.accuracy for gap in self.gaps]))

    @property
    def decided(self) -> list[Gap]:
        """The gaps whose interval excludes 0 (`Gap.verdict`)."""
        return [gap for gap in self.gaps if gap.verdict != Verdict.CANNOT_TELL]

    @property
    def changes(self) -> bool:
        """Whether the gap depends on x: the interval of its slope over log x excludes 0, or the first and the last gap
        have different signs and the interval of at least one of them excludes 0."""
        if self.slope is None:
            return False
        if abs(self.slope.value) > math.hypot(self.slope.half, self.slope_unreplicated):
            return True
        values = [gap.estimate.value for gap in (self.gaps[0], self.gaps[-1])]
        decided = [gap.verdict != Verdict.CANNOT_TELL for gap in (self.gaps[0], self.gaps[-1])]
        return values[0] * values[1] < 0 and any(decided)

    @property
    def slope_unreplicated(self) -> float:
        """Margin that is added to the slope's interval for the noise between single training runs; 0 if training was
        repeated."""
        if self.slope is None or SEEDS not in self.slope.excluded:
            return 0.0
        return float(np.linalg.norm(slope_weights([gap.x for gap in self.gaps]))) * unreplicated_noise(self.accuracy)

    @property
    def p(self) -> float:
        """p-value of the comparison: how often equal families would show a mean gap or a slope as far from 0 as here.
        It is twice the smaller p-value of these two tests (Bonferroni); gaps at a single x are not tested on their
        own."""
        beside = unreplicated_noise(self.accuracy) if SEEDS in self.mean.excluded else 0.0
        of_mean = p_value(self.mean, beside=beside)
        if self.slope is None:
            return of_mean
        return min(1.0, 2 * min(of_mean, p_value(self.slope, beside=self.slope_unreplicated)))

    @property
    def crossing(self) -> tuple[float, float] | None:
        """The range of x in which the order of the families changes: (last x where one family is ahead by more than the
        interval, next x where the other family is). None if the same family leads at the first and at the last x whose
        interval excludes 0."""
        decided = self.decided
        for before, after in pairwise(decided):
            if before.verdict != after.verdict:
                return (before.x, after.x) if decided[0].verdict != decided[-1].verdict else None
        return None

    @property
    def p_of_crossing(self) -> float:
        """p-value of the crossing: how often each of two equal families would be ahead at some x as clearly as here; 1
        without a crossing. For each family, the smallest p-value among the gaps in its favour is taken; the result is
        the larger of the two, times the number of gaps."""
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
    """Compare the best models of two families at equal compute. Return a `Reason` instead if they cannot be compared.

    Args:
        series: the models to choose from.
        first, second: names of the families.
        measure: name of the score.
    """
    sides = [[s for s in series if s.family == name] for name in (first, second)]
    low, high = common_range(*sides)
    if not 0 < MIN_RANGE_FACTOR * low <= high:
        return Reason.NO_COMMON_RANGE
    gaps = along_compute(evidence, sides[0], sides[1], (first, second), measure)
    if gaps is None or len(gaps.gaps) < 2:
        return Reason.TOO_FEW_SCORES
    return replace(gaps, begins=_begins_later(evidence, sides, (first, second)))


def _begins_later(evidence: Evidence, sides: Sequence[Sequence[Series]], names: tuple[str, str]) -> BeginsLater | None:
    """Return the families that have not begun to learn at the least compute that both sides were trained with, if the
    comparison therefore begins above it; else None.

    Args:
        sides: the series of each side, without points whose network has not begun to learn.
        names: names of the families.
    """
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
    """Return the least and the most training FLOPs that both sides cover; if their ranges do not overlap, the first
    number is the larger one."""
    low = max(min(s.points[0].train_flops for s in side) for side in (first, second))
    return low, min(max(s.last.train_flops for s in side) for side in (first, second))


def along_compute(
    evidence: Evidence, first: Sequence[Series], second: Sequence[Series], names: tuple[str, str], measure: str
) -> Gaps | None:
    """Compare the best models of two sides at `BUDGETS` levels of their common range of compute, or at one level if the
    range is narrower than `MIN_RANGE_FACTOR`. Return None if there is no common range, or no score in it.

    Args:
        first, second: the models of each side.
        names: names of the sides.
        measure: name of the score.
    """
    low, high = common_range(first, second)
    if not 0 < low <= high * ONE_BUDGET:
        return None
    places = np.geomspace(low, high, BUDGETS) if low * MIN_RANGE_FACTOR <= high else np.array([high])
    carried = evidence.published
    best = [partial(_readings, evidence, side, measure, carried=carried) for side in (first, second)]
    absent: dict[tuple[str, str], list[float]] = {}
    for x in () if carried else places.tolist():
        for name, side, at in zip(names, (first, second), best, strict=True):
            if model := _best_absent(evidence, side, measure, x, at(x)):
                absent.setdefault((name, model), []).append(x)
    left_out = {x for found in absent.values() for x in found}
    gaps = _gaps(evidence, [x for x in places.tolist() if x not in left_out], *names, measure, best)
    missed = tuple(BestAbsent(family=f, model=m, places=tuple(found)) for (f, m), found in absent.items())
    return gaps and replace(gaps, carried=carried, absent=missed)


def _best_absent(
    evidence: Evidence, side: Sequence[Series], measure: str, flops: float, rivals: Sequence[Rival]
) -> str:
    """Return the name of a side's best model at less compute, if its training ended before `flops` and the best model
    of the side at `flops` is less accurate than that one was, by more than chance; else "".

    Chance is allowed for, because leaving out the budgets at which a family happened to score low would favour it.

    Args:
        rivals: the models of the side at `flops`, with their scores.
    """
    ended = [
        (Reading(label=series.label, parts=((1.0, series.last),)), score)
        for series in side
        if series.last.train_flops * ONE_BUDGET < flops and (score := evidence.samples(series.last, measure))
    ]
    now, before = (_best(evidence, models, measure) for models in (rivals, ended))
    made = _sum(evidence, [(1.0, now[0], before[0])], measure) if now and before else None
    return before[0].label if before and made and made[0].high < 0 else ""


def at_images(evidence: Evidence, curves: Sequence[SizeCurve], first: str, second: str, measure: str) -> Gaps | None:
    """Compare the best models of two families at equal numbers of distinct pre-training images. Return None if they can
    be compared at fewer than two numbers.

    Args:
        curves: the models of all families, each trained on several sizes of a data set.
        first, second: names of the families.
        measure: name of the score.
    """
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
    """Return a weighted sum of gaps with its interval, and whether test images were compared one by one; None if scores
    are missing, or share no seed. The sum is corrected for picking the best models, and its interval includes the error
    of interpolation.

    Interpolation along one curve errs to the same side, so the errors of a family add up in a mean. In a slope, whose
    weights have both signs, errors that add up may cancel; the error is therefore at least that of independent errors.

    Args:
        places: (weight, reading of the first family's model, reading of the second family's model) of each gap.
        measure: name of the score.
    """
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
    """Return the best of some models (`rivals`), with its scores corrected for having been picked as the best; None if
    there are none."""
    if not rivals:
        return None
    errors = np.array([1 - samples.mean for _, samples in rivals])
    reading, best = rivals[int(errors.argmin())]
    pooled = evidence.pool(measure)
    noise = np.array([seed_error(samples, pooled)[0] for _, samples in rivals])
    if len(rivals) == 1 or pooled is None or not np.isfinite(noise).all():
        return reading, best
    near = np.flatnonzero(errors <= errors.min() + FAR_OFF * noise).tolist()
    bias = float(frontier_bias(errors, noise, [near], draws=SELECTION_DRAWS)[0])  # bias of an error, so negative
    return replace(reading, bias=bias), replace(best, values_SD=best.values_SD + bias)


def _readings(evidence: Evidence, side: Sequence[Series], measure: str, flops: float, *, carried: bool) -> list[Rival]:
    """Return the models of a side at a compute of `flops`, with their scores. A model that was evaluated only below and
    above this compute is interpolated in log compute; a model that was evaluated only on one side of it is left out.

    Args:
        side: the models of the side.
        measure: name of the score.
        carried: whether to include models whose longest run ended at less compute, and to leave out the error of
            interpolation.
    """
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
    """Return the accuracy of a side's best model with at most `flops` of compute, including models whose runs ended at
    less; None if there is no score. It is for curves of the best accuracy so far, not for comparisons at equal compute.

    Args:
        side: the models of the side.
        measure: name of the score.
    """
    return max((read.mean for _, read in _readings(evidence, side, measure, flops, carried=True)), default=None)


def _slack(evidence: Evidence, series: Series, measure: str, flops: float) -> float:
    """Return the possible error, in accuracy, of interpolating the score `measure` of a model at a compute of `flops`.
    A model with only two budgets is assumed to have the largest curvature of the study's other models."""
    log_x, y = _curve(evidence, series, measure)
    others = [_curve(evidence, s, measure) for s in evidence.on_axis("compute")] if len(log_x) < 3 else []
    bends = [bend for curve in others for bend in interpolation.curvatures(*curve)[0].tolist()]
    return interpolation.error(log_x, y, math.log(flops), usual=max(bends, default=None))


def _curve(evidence: Evidence, series: Series, measure: str) -> tuple[list[float], list[float]]:
    """Return a model's accuracy over compute: (logarithms of FLOPs, accuracies), one entry for each budget."""
    known = [(math.log(p.train_flops), s.mean) for p in series.points if (s := evidence.samples(p, measure))]
    return [x for x, _ in known], [y for _, y in known]


# -- families ----------------------------------------------------------------------------------------------------------


def of_one_data_set(series: Sequence[Series]) -> list[Series]:
    """Return the series that were pre-trained on the data set that most of the series use, because families are
    compared on equal data."""
    used = Counter(s.last.data for s in series).most_common(1)
    return [s for s in series if s.last.data == used[0][0]]
