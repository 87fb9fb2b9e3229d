"""Computes the accuracy gap between the frontiers of two families over compute, point by point, and its slope with an
interval.

A frontier is a family's best points, to which its law is fitted. The slope is that of least squares over log compute;
if the gap is curved, this is an average change per tenfold compute, in which the ends weigh more.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from bench.analysis.budgets import one_budget
from bench.analysis.comparisons import unreplicated_noise
from bench.analysis.contrast import contrast, slope_weights
from bench.analysis.evidence import Evidence, Point
from bench.analysis.finding import TREND_POINTS, TrendPoint
from bench.analysis.scaling_laws import Law
from bench.stats.intervals import SEEDS, UNBOUNDED, Estimate
from bench.stats.levels import p_value


@dataclass(frozen=True, kw_only=True)
class FrontierGap:
    """The accuracy gap between the frontiers of two families, first - second.

    Attributes:
        trend: the gap at every frontier point of the first family that is in the range of the second.
        slope: change of the gap per tenfold compute; None if there are fewer than `TREND_POINTS` points.
        beside: margin that is added to the slope's interval for the noise between single training runs; 0 if training
            was repeated.
    """

    trend: tuple[TrendPoint, ...]
    slope: Estimate | None = None
    beside: float = 0.0

    @property
    def half(self) -> float:
        """Half the width of the slope's interval, `beside` included; 0 without a slope."""
        return 0.0 if self.slope is None else float(np.hypot(self.slope.half, self.beside))

    @property
    def p(self) -> float:
        """p-value of the slope: how often a constant gap would show a slope as large as this; 1 without a slope."""
        return 1.0 if self.slope is None else p_value(self.slope, beside=self.beside)


def frontier_gap(evidence: Evidence, first: Law, second: Law) -> FrontierGap:
    """Return the gap at every frontier point of the first family that is inside the range of the second, whose error is
    interpolated in log compute. A point outside by less than a budget's tolerance (`one_budget`) counts as inside."""
    (x, own), (at, other) = first.frontier, second.frontier
    inside = np.array([at[0] <= a <= at[-1] or one_budget(a, at[0]) or one_budget(a, at[-1]) for a in x])
    x, own = x[inside], own[inside]
    gaps = np.interp(np.log(x), np.log(at), other) - own
    trend = tuple(TrendPoint(x=float(a), estimate=float(b)) for a, b in zip(x, gaps, strict=True))
    if len(trend) < TREND_POINTS:
        return FrontierGap(trend=trend)
    weights = slope_weights(x)
    mine, theirs = _by_place(evidence, first), _by_place(evidence, second)
    of_second = []
    for weight, a in zip(weights.tolist(), x.tolist(), strict=True):
        right = int(np.clip(np.searchsorted(at, a), 1, len(at) - 1))
        share = float(np.clip(np.log(a / at[right - 1]) / np.log(at[right] / at[right - 1]), 0.0, 1.0))
        of_second += [(weight * (1 - share), theirs[float(at[right - 1])]), (weight * share, theirs[float(at[right])])]
    made = contrast(
        evidence, list(zip(weights.tolist(), (mine[a] for a in x.tolist()), strict=True)), of_second, first.measure
    )
    if made is None:
        return FrontierGap(trend=trend)
    slope = replace(made[0], value=float(weights @ gaps), bounds=UNBOUNDED)
    accuracy = 1 - float(np.mean(own))
    single = unreplicated_noise(accuracy) * float(np.linalg.norm(weights))
    return FrontierGap(trend=trend, slope=slope, beside=single if SEEDS in slope.excluded else 0.0)


def _by_place(evidence: Evidence, law: Law) -> dict[float, Point]:
    """Return, for each x of the points that a law is fitted to, the best of the points at this x."""
    best: dict[float, tuple[float, Point]] = {}
    for point in law.points:
        e = evidence.estimate(point, law.measure)
        if e is not None and e.value > best.get(point.train_flops, (-1.0, point))[0]:
            best[point.train_flops] = e.value, point
    return {x: point for x, (_, point) in best.items()}
