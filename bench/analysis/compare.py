"""Paired comparisons: on the same few-shot draws, the same test images and, where there are seeds, the same seeds."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal

from bench.analysis.evidence import Evidence, Point, Series
from bench.analysis.sizes import SizeCurve
from bench.core.formatting import percent
from bench.stats.intervals import SEEDS, Estimate, Pool, Samples, difference, estimate, mean_of, pool

Verdict = Literal["yes", "no", "cannot tell"]
UNREPLICATED = 0.12
"""Without any repeated training run, differences under 0.12 in log-odds are read as nothing: 3 points at 50 %, 0.6 at
95 %. A public replication saw the few-shot probe move by 2.15 points (one standard deviation) from seed to seed at
middling accuracy; where few images are left to get wrong, luck moves fewer. Fine-tuning repeated from one pre-trained
network bounds it from below alone: at most 0.23 points per task (Dosovitskiy et al. 2021, Table 2)."""
READ_AS_NOTHING = (
    "differences that luck may make are read as nothing: under "
    f"{100 * UNREPLICATED / 4:.0f} points at 50 % accuracy, {100 * UNREPLICATED * 0.95 * 0.05:.1f} at 95 %"
)


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """A difference of accuracies at one point of one model. `estimate.value` > 0: the first named is better.

    `accuracy`: the mean of the two that are compared.
    """

    subject: str
    family: str
    what: str  # "trained − untrained", "24,000 → 72,000 images seen", …
    measure: str
    point: Point
    estimate: Estimate
    accuracy: float

    @property
    def verdict(self) -> Verdict:
        return verdict(self.estimate, self.accuracy)


def verdict(e: Estimate, accuracy: float, *, models: int = 1) -> Verdict:
    """Whether a difference is above 0, below 0 or neither, beyond its interval.

    An interval without training noise is widened by `luck` at this accuracy (less for the mean of several models).
    """
    margin = math.hypot(e.half, luck(accuracy) / math.sqrt(models)) if SEEDS in e.excluded else e.half
    return "yes" if e.value > margin else "no" if e.value < -margin else "cannot tell"


def luck(accuracy: float) -> float:
    """What a difference between single training runs at this accuracy (0..1) may owe to luck, in accuracy."""
    return UNREPLICATED * accuracy * (1 - accuracy)


def reservation(e: Estimate, accuracy: float, *, models: int = 1) -> str:
    """A sentence where the interval excludes zero and the verdict is "cannot tell" all the same; else ""."""
    if abs(e.value) <= e.half or verdict(e, accuracy, models=models) != "cannot tell":
        return ""
    return (f"Beyond the interval, but that leaves training noise out: with one run each, {100 * luck(accuracy):.1f} "
            f"points may be luck at {percent(accuracy)} %.")  # fmt: skip


def overall(comparisons: Sequence[Comparison]) -> tuple[Estimate, Verdict]:
    """The mean over models and its verdict."""
    mean = mean_of([c.estimate for c in comparisons])
    return mean, verdict(mean, mean_accuracy(comparisons), models=len(comparisons))


def mean_accuracy(comparisons: Sequence[Comparison]) -> float:
    """Around which accuracy the differences lie."""
    return math.fsum(c.accuracy for c in comparisons) / len(comparisons)


def against_untrained(evidence: Evidence, series: Iterable[Series], measure: str) -> list[Comparison]:
    """Each model at its longest horizon minus the same network before training."""
    pairs = [(s.label, "trained − untrained", s.last, s.untrained) for s in series if s.untrained]
    return _compare(evidence, pairs, measure)


def against_pixels(evidence: Evidence, series: Iterable[Series], measure: str) -> list[Comparison]:
    """Each model at its longest horizon minus the same probe on raw pixels."""
    if evidence.pixels is None:
        return []
    return _compare(evidence, [(s.label, "trained − raw pixels", s.last, evidence.pixels) for s in series], measure,
                    pooled=evidence.pool(measure))  # fmt: skip


def compute_ends(evidence: Evidence, series: Iterable[Series], measure: str) -> list[Comparison]:
    """Each model's longest minus its shortest trained horizon."""
    pairs = [(s.label, _horizons(s.points[0], s.last), s.last, s.points[0]) for s in series if len(s.points) > 1]
    return _compare(evidence, pairs, measure)


def compute_steps(evidence: Evidence, series: Iterable[Series], measure: str) -> list[Comparison]:
    """Every horizon minus the one before it, within a trunk."""
    pairs = [(s.label, _horizons(a, b), b, a) for s in series for a, b in pairwise(s.points)]
    return _compare(evidence, pairs, measure)


def size_ends(evidence: Evidence, curves: Iterable[SizeCurve], measure: str) -> list[Comparison]:
    """The most minus the fewest distinct images, at equal images seen."""
    pairs = []
    for c in curves:
        first, last = c.points[0], c.points[-1]
        pairs.append((c.label, f"{first.unique_images:,} → {last.unique_images:,} distinct images", last, first))
    return _compare(evidence, pairs, measure, pooled=_twice(evidence.pool(measure)))


def independent_difference(evidence: Evidence, a: Samples, b: Samples, measure: str) -> Estimate | None:
    """a - b for two models that were trained apart: the pooled variance counts twice."""
    both = difference(a, b)
    return None if both is None else estimate(both, pooled=_twice(evidence.pool(measure)), level=evidence.level)


def differences(
    evidence: Evidence, pairs: Sequence[tuple[str, str, Point, Point]], measure: str
) -> list[Comparison]:
    """First minus second point of each (subject, what, first, second), on the seeds that both have."""
    return _compare(evidence, pairs, measure)


def _twice(pooled: Pool | None) -> Pool | None:
    return replace(pooled, variance=2 * pooled.variance) if pooled else None


def _compare(
    evidence: Evidence, pairs: Sequence[tuple[str, str, Point, Point]], measure: str, *, pooled: Pool | None = None
) -> list[Comparison]:
    """Differences with intervals. Without `pooled`, the variance between seeds is pooled over the pairs themselves,
    which keeps what the two sides of a pair share (one trunk, one initialisation)."""
    samples: dict[int, Samples] = {}
    around: dict[int, float] = {}
    for number, (_, _, better, base) in enumerate(pairs):
        a, b = evidence.samples(better, measure), evidence.samples(base, measure)
        both = difference(a, b) if a and b else None
        if a and b and both is not None:
            samples[number] = both
            around[number] = (a.mean + b.mean) / 2
    pooled = pooled or pool((pairs[n][2].variant, item) for n, item in samples.items())
    return [
        Comparison(subject=pairs[n][0], family=pairs[n][2].family, what=pairs[n][1], measure=measure, point=pairs[n][2],
                   estimate=estimate(item, pooled=pooled, level=evidence.level), accuracy=around[n])
        for n, item in samples.items()
    ]  # fmt: skip


def _horizons(a: Point, b: Point) -> str:
    return f"{a.images_seen:,} → {b.images_seen:,} images seen"
