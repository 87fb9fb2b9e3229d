"""Which family is ahead at equal compute, and whether the order changes. Nothing is extrapolated.

A family stands at a budget with the best model that it trained within it: one read below and above the budget is
interpolated, one whose longest run costs less counts with that run. The best of several noisy models looks better than
it is, the more so the more there are; where training was repeated, so that its noise is known, every best score is
corrected for having been picked.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise

import numpy as np

from bench.analysis.compare import Verdict, independent_difference, verdict
from bench.analysis.evidence import Evidence, Series
from bench.analysis.sizes import SizeCurve
from bench.stats.crossing import frontier_bias
from bench.stats.intervals import Estimate, Samples, mix

GRID = 5
"""Compute levels, evenly spaced in log compute over the common range, at which two families are compared."""
WIDE = 1.25  # a common range narrower than this factor is one budget, not a range
PICKS = 1000  # draws behind a correction for picking
FAR_OFF = 6.0  # standard errors: a model this much worse than the best cannot have been picked by luck


@dataclass(frozen=True, kw_only=True)
class Gap:
    """first - second at one place of the common range (FLOP, or distinct images), around `accuracy`."""

    x: float
    first_model: str
    second_model: str
    estimate: Estimate
    accuracy: float

    @property
    def verdict(self) -> Verdict:
        return verdict(self.estimate, self.accuracy)


@dataclass(frozen=True, kw_only=True)
class Duel:
    """Two families over their common range. `mean` averages the gaps along it. `corrected`: for picking the best."""

    first: str
    second: str
    gaps: tuple[Gap, ...]
    mean: Estimate
    corrected: bool

    @property
    def accuracy(self) -> float:
        """Around which accuracy the gaps lie, on average."""
        return float(np.mean([gap.accuracy for gap in self.gaps]))

    @property
    def verdict(self) -> Verdict:
        """Of the mean gap."""
        return verdict(self.mean, self.accuracy)

    @property
    def range(self) -> tuple[float, float]:
        return self.gaps[0].x, self.gaps[-1].x

    @property
    def crossing(self) -> tuple[float, float] | None:
        """Where the order changes, as an interval of x: the last place where one family is ahead beyond the interval
        and the next where the other is. None unless the first and the last decided places differ."""
        decided = [gap for gap in self.gaps if gap.verdict != "cannot tell"]
        for before, after in pairwise(decided):
            if before.verdict != after.verdict:
                return (before.x, after.x) if decided[0].verdict != decided[-1].verdict else None
        return None


def at_compute(evidence: Evidence, series: Sequence[Series], first: str, second: str, measure: str) -> Duel | None:
    """Compare two families' best models at equal compute. None where that cannot be done; see `why_not`."""
    sides = [[s for s in series if s.family == name] for name in (first, second)]
    common = _common_range(sides)
    if common is None:
        return None
    best = [partial(_within, evidence, side, measure) for side in sides]
    return _duel(evidence, np.geomspace(*common, GRID), first, second, measure, best)


def why_not(series: Sequence[Series], first: str, second: str) -> str:
    """Why `at_compute` has nothing to say about two families."""
    if _common_range([[s for s in series if s.family == name] for name in (first, second)]) is None:
        return "Their ranges of compute hardly overlap, if at all."
    return "Too few of their models have scores where their ranges of compute overlap."


def _common_range(sides: Sequence[Sequence[Series]]) -> tuple[float, float] | None:
    """Compute, in FLOP, that both sides cover; None where that is hardly more than a point."""
    if not all(sides):
        return None
    low = max(min(s.points[0].train_flops for s in side) for side in sides)
    high = min(max(s.last.train_flops for s in side) for side in sides)
    return (low, high) if 0 < WIDE * low <= high else None


def at_images(evidence: Evidence, curves: Sequence[SizeCurve], first: str, second: str, measure: str) -> Duel | None:
    """Compare two families' best models of the data-size axis at equal numbers of distinct images."""
    sides = [[c for c in curves if c.family == name] for name in (first, second)]
    sizes = [{p.unique_images for c in side for p in c.points} for side in sides]
    shared = sorted(sizes[0] & sizes[1])
    if len(shared) < 2:
        return None

    def at(side: Sequence[SizeCurve], x: float) -> list[Rival]:
        return [(c.label, s) for c in side for p in c.points
                if p.unique_images == x and (s := evidence.samples(p, measure)) is not None]  # fmt: skip

    return _duel(evidence, shared, first, second, measure, [partial(at, side) for side in sides])


Rival = tuple[str, Samples]
Side = Callable[[float], list[Rival]]
"""Everything that a family has at a place of the axis."""


def _duel(
    evidence: Evidence, places: Sequence[float] | np.ndarray, first: str, second: str, measure: str,
    sides: Sequence[Side],
) -> Duel | None:
    gaps, samples = [], []
    for x in places:
        a, b = (_best(evidence, side(float(x)), measure) for side in sides)
        e = independent_difference(evidence, a[1], b[1], measure) if a and b else None
        if a and b and e:
            gaps.append(Gap(x=float(x), first_model=a[0], second_model=b[0], estimate=e,
                            accuracy=(a[1].mean + b[1].mean) / 2))  # fmt: skip
            samples.append((a[1], b[1]))
    if len(gaps) < 2:
        return None
    mean = independent_difference(evidence, _along([a for a, _ in samples]), _along([b for _, b in samples]), measure)
    corrected = _known_noise(evidence, measure) > 0
    return Duel(first=first, second=second, gaps=tuple(gaps), mean=mean, corrected=corrected) if mean else None


def _best(evidence: Evidence, found: Sequence[Rival], measure: str) -> Rival | None:
    """The best of some models, its scores lowered by what being picked has added on average."""
    if not found:
        return None
    errors = np.array([1 - samples.mean for _, samples in found])
    label, best = found[int(errors.argmin())]
    variance = _known_noise(evidence, measure)
    if len(found) == 1 or not variance:
        return label, best
    noise = np.sqrt(variance / np.array([max(1, len(samples.seeds)) for _, samples in found]))
    near = np.flatnonzero(errors <= errors.min() + FAR_OFF * noise).tolist()
    picked = float(frontier_bias(errors, noise, [near], draws=PICKS)[0])  # of an error: negative
    return label, replace(best, values_SD=best.values_SD + picked)


def _known_noise(evidence: Evidence, measure: str) -> float:
    """Variance between seeds; 0 where nothing was repeated and so nothing is known."""
    pooled = evidence.pool(measure)
    return pooled.variance if pooled else 0.0


def _within(evidence: Evidence, side: Sequence[Series], measure: str, flops: float) -> list[Rival]:
    """The family's models within this compute, interpolated in log compute where they were read beyond it."""
    found = []
    for series in side:
        if series.last.train_flops <= flops and (ended := evidence.samples(series.last, measure)) is not None:
            found.append((series.label, ended))
            continue
        for a, b in pairwise(series.points):
            if a.train_flops * (1 - 1e-9) <= flops <= b.train_flops * (1 + 1e-9):
                weight = math.log(flops / a.train_flops) / math.log(b.train_flops / a.train_flops)
                at_a, at_b = evidence.samples(a, measure), evidence.samples(b, measure)
                mixed = mix(at_a, at_b, min(1.0, max(0.0, weight))) if at_a and at_b else None
                if mixed is not None:
                    found.append((series.label, mixed))
                break
    return found


def _along(parts: Sequence[Samples]) -> Samples:
    """The mean along the range: the test images are the same everywhere, so their error does not shrink."""
    result = parts[0]
    for number, part in enumerate(parts[1:], start=1):
        mixed = mix(result, part, 1 / (number + 1))
        result = result if mixed is None else mixed
    return result
