"""Paired comparisons: on the same few-shot draws, the same test images and, where there are seeds, the same seeds."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from bench.analysis.evidence import CHOICES, FAR, HEADLINE, UPSTREAM, Evidence, Point, Series, family_rank
from bench.analysis.finding import Counts, Difference, Finding, Item, Reason, TrendPoint, Unit, Verdict
from bench.core.by_key import by_key
from bench.stats.intervals import (
    IMAGES,
    SEEDS,
    Estimate,
    Samples,
    difference,
    estimate,
    estimate_difference,
    mean_of,
    pool,
    z_quantile,
)
from bench.stats.paired import contrast_error

UNREPLICATED = 0.12
"""Without any repeated training run, differences under 0.12 in log-odds are read as nothing: 3 points at 50 %, 0.6 at
95 %. A public replication saw the few-shot probe move by 2.15 points (one standard deviation) from seed to seed at
middling accuracy; where few images are left to get wrong, it moves fewer. Fine-tuning repeated from one pre-trained
network bounds it from below alone: at most 0.23 points per task (Dosovitskiy et al. 2021, Table 2)."""


# -- verdicts ----------------------------------------------------------------------------------------------------------


def half_width(e: Estimate, accuracy: float, *, models: int = 1) -> float:
    """Half the width of a difference's interval; one that holds no training noise is widened by what single runs at
    this accuracy may owe to it (less for the mean of several models)."""
    return math.hypot(e.half, unreplicated_noise(accuracy) / math.sqrt(models)) if SEEDS in e.excluded else e.half


def unreplicated_noise(accuracy: float) -> float:
    """The difference, in accuracy, that chance may cause between single training runs at this accuracy (0..1)."""
    return UNREPLICATED * accuracy * (1 - accuracy)


def verdict(e: Estimate, accuracy: float, *, models: int = 1) -> Verdict:
    """Whether a difference is above 0, below 0 or neither, beyond its `half_width`."""
    margin = half_width(e, accuracy, models=models)
    return Verdict.YES if e.value > margin else Verdict.NO if e.value < -margin else Verdict.CANNOT_TELL


def undecided(e: Estimate, accuracy: float, *, models: int = 1) -> tuple[str, ...]:
    """Why `verdict` is undecided; () where it is decided."""
    if verdict(e, accuracy, models=models) != Verdict.CANNOT_TELL:
        return ()
    return (Reason.WITHIN_INTERVAL if abs(e.value) <= e.half else Reason.UNREPLICATED,)


@dataclass(frozen=True, kw_only=True)
class Gap:
    """first - second at one place of the common range (FLOP, or distinct images), around `accuracy`; `paired` on test
    images; `below`: the families whose model is below raw pixels there."""

    x: float
    first_model: str
    second_model: str
    estimate: Estimate
    accuracy: float
    paired: bool = False
    below: tuple[str, ...] = ()

    @property
    def verdict(self) -> Verdict:
        return verdict(self.estimate, self.accuracy)

    @property
    def half(self) -> float:
        return half_width(self.estimate, self.accuracy)

    @property
    def trend(self) -> TrendPoint:
        e = self.estimate
        return TrendPoint(
            x=self.x,
            estimate=e.value,
            low=e.low,
            high=e.high,
            verdict=self.verdict,
            first=self.first_model,
            second=self.second_model,
            below=self.below,
        )


@dataclass(frozen=True, kw_only=True)
class Pair:
    """Two points to be compared: of one model, or a model's and raw pixels."""

    contrast: str
    model: str
    point: Point
    base: Point
    from_x: float | None = None
    to_x: float | None = None


@dataclass(frozen=True, kw_only=True)
class PairedDifference:
    """point - base on one measure; `accuracy`: the mean of the two."""

    pair: Pair
    measure: str
    estimate: Estimate
    accuracy: float

    @property
    def family(self) -> str:
        return self.pair.point.family

    @property
    def verdict(self) -> Verdict:
        return verdict(self.estimate, self.accuracy)

    @property
    def item(self) -> Difference:
        e, pair = self.estimate, self.pair
        return Difference(
            contrast=pair.contrast,
            model=pair.model,
            family=self.family,
            measure=self.measure,
            estimate=e.value,
            low=e.low,
            high=e.high,
            verdict=self.verdict,
            n=counts(e),
            excluded=e.excluded,
            from_x=pair.from_x,
            to_x=pair.to_x,
            train_flops=pair.point.train_flops,
        )


def counts(e: Estimate, **more: int) -> Counts:
    """n behind an estimate."""
    return Counts(seeds=e.num_seeds, draws=e.num_draws, tasks=e.tasks, test_images=e.num_test, **more)


def overall(differences: Sequence[PairedDifference]) -> tuple[Estimate, Verdict]:
    """The mean over models and its verdict."""
    mean = mean_of([c.estimate for c in differences])
    return mean, verdict(mean, mean_accuracy(differences), models=len(differences))


def mean_accuracy(differences: Sequence[PairedDifference]) -> float:
    """Around which accuracy the differences lie."""
    return math.fsum(c.accuracy for c in differences) / len(differences)


def mean_finding(
    question: str,
    subject: Sequence[str],
    differences: Sequence[PairedDifference],
    *,
    mean: Estimate | None = None,
    evidence: Sequence[Item] = (),
    reasons: Sequence[str] = (),
    paired: int = 0,
) -> Finding:
    """The mean over the models that were compared, with every comparison behind it.

    Args:
        mean: in place of the plain one.
        evidence, reasons: further ones.
    """
    mean = mean or overall(differences)[0]
    accuracy, number = mean_accuracy(differences), len(differences)
    models = len({c.pair.model for c in differences})
    made = difference_finding(question, subject, mean, accuracy, measure=differences[0].measure, models=number)
    return replace(
        made,
        main=made.measure == HEADLINE,
        reasons=(*made.reasons, *reasons),
        n=counts(mean, models=models, steps=number if number > models else 0, paired=paired),
        margin=unreplicated_noise(accuracy) / math.sqrt(number) if Reason.UNREPLICATED in made.reasons else None,
        evidence=(*(c.item for c in differences), *evidence),
    )


def difference_finding(
    question: str,
    subject: Sequence[str],
    e: Estimate,
    accuracy: float,
    *,
    measure: str = HEADLINE,
    models: int = 1,
    paired: bool = False,
) -> Finding:
    """A difference of accuracies, judged.

    Args:
        accuracy: around which it lies.
        models: that it is the mean of.
        paired: whether test images were compared one by one.
    """
    return Finding(
        question=question,
        subject=tuple(subject),
        measure=measure,
        verdict=verdict(e, accuracy, models=models),
        reasons=undecided(e, accuracy, models=models),
        quantity="accuracy difference",
        unit=Unit.SHARE,
        estimate=e.value,
        low=e.low,
        high=e.high,
        level=e.level,
        n=counts(e, paired=int(paired)),
        excluded=e.excluded,
    )


# -- comparing ---------------------------------------------------------------------------------------------------------


def compare(evidence: Evidence, pairs: Sequence[Pair], measure: str, *, apart: bool = False) -> list[PairedDifference]:
    """Differences with intervals, on the seeds that both have.

    Args:
        apart: the sides of a pair were trained apart, and each has the variance between seeds of its model. Otherwise
            it is that of the pairs' own differences, which keeps what their sides share (one trunk, one
            initialisation).
    """
    known: list[tuple[Pair, Samples, Samples, Samples]] = []
    for pair in pairs:
        a, b = evidence.samples(pair.point, measure), evidence.samples(pair.base, measure)
        both = difference(a, b) if a and b else None
        if a and b and both is not None:
            known.append((pair, a, b, both))
    pooled = None if apart else pool(both for *_, both in known)
    differences = []
    for pair, a, b, both in known:
        e = independent_difference(evidence, a, b, measure) if apart else None
        e = e or estimate(both, pooled=pooled, level=evidence.level)
        e = on_the_same_images(evidence, e, [(1.0, pair.point), (-1.0, pair.base)], measure) or e
        differences.append(PairedDifference(pair=pair, measure=measure, accuracy=(a.mean + b.mean) / 2, estimate=e))
    return differences


def independent_difference(evidence: Evidence, a: Samples, b: Samples, measure: str) -> Estimate | None:
    """a - b for two models that were trained apart."""
    return estimate_difference(a, b, pooled=evidence.pool(measure), level=evidence.level)


def on_the_same_images(
    evidence: Evidence, e: Estimate, parts: Sequence[tuple[float, Point]], measure: str
) -> Estimate | None:
    """The estimate of a weighted sum over points with its error over test images taken image by image; None where
    records do not hold which images were right."""
    tasks = evidence.parts(measure)
    single = [(weight / len(tasks), evidence.samples(point, task)) for weight, point in parts for task in tasks]
    known = [(weight, samples) for weight, samples in single if samples is not None]
    error = contrast_error(known) if len(known) == len(single) else None
    return None if error is None else replace(e, margins={**e.margins, IMAGES: z_quantile(e.level) * error})


# -- images: sizes of one data set at equal images seen ----------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class SizeCurve:
    """One model at one number of images seen, over nested subsets; points in order of distinct images."""

    label: str
    family: str
    points: tuple[Point, ...]

    @property
    def decades(self) -> float:
        """Range of distinct images in powers of ten."""
        return math.log10(self.points[-1].unique_images / self.points[0].unique_images)


def size_curves(evidence: Evidence, *, every: bool = False) -> tuple[SizeCurve, ...]:
    """Each model of the data-size axis, with its points at the longest horizon that most of its sizes reached; `every`:
    also those of networks that have not begun to learn, for pictures."""
    groups = by_key(((s.label, s.last.data), s) for s in evidence.on_axis("data_size", every=every))
    curves = []
    for (label, _), members in groups.items():
        reached: dict[int, dict[int, Point]] = {}  # images seen -> distinct images -> point
        for series in members:
            for point in series.points:
                reached.setdefault(point.images_seen, {})[point.unique_images] = point
        best = max(reached, key=lambda seen: (len(reached[seen]), seen))
        points = tuple(reached[best][n] for n in sorted(reached[best]) if n > 0)
        if len(points) > 1:
            curves.append(SizeCurve(label=label, family=points[0].family, points=points))
    return tuple(sorted(curves, key=lambda c: (family_rank(c.family), c.points[-1].forward_macs, c.label)))


def below_pixels(
    evidence: Evidence, sides: Iterable[tuple[str, Sequence[tuple[float, Point]]]], measure: str
) -> tuple[str, ...]:
    """Names of the sides, each a weighted sum of points, that the same probe beats on raw pixels, on average over the
    tasks that pixels were scored on: what such networks add to a comparison is what they have lost."""
    blank = {
        task: s.mean
        for task in evidence.parts(measure)
        if evidence.pixels and (s := evidence.samples(evidence.pixels, task)) is not None
    }

    def beaten(parts: Sequence[tuple[float, Point]]) -> bool:
        scored = [(w, evidence.samples(point, task)) for task in blank for w, point in parts]
        known = [w * s.mean for w, s in scored if s is not None]
        return len(known) == len(scored) > 0 and math.fsum(known) < math.fsum(blank.values())

    return tuple(name for name, parts in sides if beaten(parts))


# -- families ----------------------------------------------------------------------------------------------------------


def families_of(series: Iterable[Series]) -> list[str]:
    """Names of the families, in order."""
    return sorted({s.family for s in series}, key=family_rank)


def compared_series(evidence: Evidence, *, every: bool = False) -> tuple[Series, ...]:
    """Series of the compute axis, by which families are compared; () where nothing is judged downstream, and in a study
    that changes single design choices.

    Args:
        every: with the points whose network has not begun to learn, for questions about training itself.
    """
    axes = {axis for p in evidence.points.values() for axis in p.axes}
    if not evidence.headline or (axes and axes <= set(CHOICES)):
        return ()
    return evidence.on_axis("compute", every=every)


def averages(evidence: Evidence) -> list[str]:
    """The measures that are averages over tasks."""
    return [HEADLINE, FAR] if evidence.far else [HEADLINE]


def with_upstream(evidence: Evidence) -> list[str]:
    return [*averages(evidence), *([UPSTREAM] if UPSTREAM in evidence.measures else [])]
