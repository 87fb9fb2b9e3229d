"""Compares models in pairs: on the same few-shot samples, the same test images and, if they have seeds, the same
seeds."""

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
"""Margin in log-odds for the noise between single training runs. Without any repeated run, smaller differences count as
no difference: 3 percentage points at 50 % accuracy, 0.6 at 95 %. A public replication saw the few-shot probe vary by
2.15 points (one standard deviation) between seeds at medium accuracy; it varies less where few images are left to get
wrong. Repeated fine-tuning of one pre-trained network gives only a lower bound of this noise: at most 0.23 points per
task (Dosovitskiy et al. 2021, Table 2)."""


# -- verdicts ----------------------------------------------------------------------------------------------------------


def half_width(e: Estimate, accuracy: float, *, models: int = 1) -> float:
    """Return half the width of the interval of a difference in accuracy. If the interval excludes training noise, the
    margin `unreplicated_noise` is added in quadrature.

    Args:
        e: the difference.
        accuracy: mean accuracy of its two sides (0..1).
        models: number of models that the difference is the mean of; the margin is divided by its square root.
    """
    return math.hypot(e.half, unreplicated_noise(accuracy) / math.sqrt(models)) if SEEDS in e.excluded else e.half


def unreplicated_noise(accuracy: float) -> float:
    """Return the difference in accuracy that noise alone may cause between two single training runs whose accuracy is
    about `accuracy` (both 0..1)."""
    return UNREPLICATED * accuracy * (1 - accuracy)


def verdict(e: Estimate, accuracy: float, *, models: int = 1) -> Verdict:
    """Return YES if a difference in accuracy is above 0 by more than its `half_width`, NO if it is below by more, else
    CANNOT_TELL.

    Args:
        e: the difference.
        accuracy: mean accuracy of its two sides (0..1).
        models: number of models that the difference is the mean of.
    """
    margin = half_width(e, accuracy, models=models)
    return Verdict.YES if e.value > margin else Verdict.NO if e.value < -margin else Verdict.CANNOT_TELL


def undecided(e: Estimate, accuracy: float, *, models: int = 1) -> tuple[str, ...]:
    """Return the `Reason` why `verdict` is CANNOT_TELL, in a tuple; () if it is YES or NO.

    Args:
        e: a difference in accuracy.
        accuracy: mean accuracy of its two sides (0..1).
        models: number of models that the difference is the mean of.
    """
    if verdict(e, accuracy, models=models) != Verdict.CANNOT_TELL:
        return ()
    return (Reason.WITHIN_INTERVAL if abs(e.value) <= e.half else Reason.UNREPLICATED,)


@dataclass(frozen=True, kw_only=True)
class Gap:
    """The difference in accuracy between two sides (families or models), first - second, at one x of their common
    range.

    Attributes:
        x: compute in FLOP, or number of distinct images.
        first_model, second_model: the models that represent the two sides at this x.
        estimate: the difference in accuracy.
        accuracy: mean accuracy of the two models.
        paired: whether test images were compared one by one.
        below: names of the sides whose model has a lower accuracy at this x than the probe on raw pixels.
    """

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
    """Two points to be compared, `point` with `base`: both of one model, or one of a model and one of raw pixels.

    Attributes:
        contrast: what `base` is, such as "untrained".
        from_x, to_x: numbers, such as images seen, that a report gives for `base` and for `point` if they differ; None:
            not given.
    """

    contrast: str
    model: str
    point: Point
    base: Point
    from_x: float | None = None
    to_x: float | None = None


@dataclass(frozen=True, kw_only=True)
class PairedDifference:
    """The difference in the score `measure` between the points of a pair, point - base. `accuracy`: mean accuracy of
    the two points."""

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
    """Return the sample sizes behind an estimate. `more`: further fields of `Counts`."""
    return Counts(seeds=e.num_seeds, draws=e.num_draws, tasks=e.tasks, test_images=e.num_test, **more)


def overall(differences: Sequence[PairedDifference]) -> tuple[Estimate, Verdict]:
    """Return the mean of the differences of several models, and the verdict on that mean (`verdict`)."""
    mean = mean_of([c.estimate for c in differences])
    return mean, verdict(mean, mean_accuracy(differences), models=len(differences))


def mean_accuracy(differences: Sequence[PairedDifference]) -> float:
    """Return the mean accuracy of both sides over all differences."""
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
    """Return a finding on the mean of the differences of several models, with each difference as evidence.

    Args:
        question: name of the question that the finding answers.
        subject: what the finding is about, such as a family.
        mean: takes the place of the unweighted mean of `differences`.
        evidence, reasons: further evidence and reasons.
        paired: number of differences for which test images were compared one by one.
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
    """Return a finding on a difference of accuracies, with its verdict.

    Args:
        question: name of the question that the finding answers.
        subject: names of what was compared.
        e: the difference.
        accuracy: mean accuracy of the two sides.
        measure: name of the score that was compared.
        models: number of models that the difference is the mean of.
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
    """Return the difference in the score `measure` of every pair, with its interval, on the seeds that both points
    have; pairs that have no scores in common are left out.

    Args:
        apart: whether the two points of a pair were trained independently; each then adds the variance between seeds of
            its model. Otherwise the variance is that of the pairs' differences, in which noise that two points share
            (through a trunk or an initialisation) cancels.
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
    """Return the difference a - b, with its interval, of two models that were trained independently of each other; None
    if they have no seeds or few-shot samples in common."""
    return estimate_difference(a, b, pooled=evidence.pool(measure), level=evidence.level)


def on_the_same_images(
    evidence: Evidence, e: Estimate, parts: Sequence[tuple[float, Point]], measure: str
) -> Estimate | None:
    """Return an estimate of a weighted sum of scores with its error over test images replaced by one that is computed
    image by image; None if the records do not hold which images were right.

    Args:
        e: the estimate.
        parts: (weight, point) of each term of the sum.
        measure: name of the score.
    """
    tasks = evidence.parts(measure)
    single = [(weight / len(tasks), evidence.samples(point, task)) for weight, point in parts for task in tasks]
    known = [(weight, samples) for weight, samples in single if samples is not None]
    error = contrast_error(known) if len(known) == len(single) else None
    return None if error is None else replace(e, margins={**e.margins, IMAGES: z_quantile(e.level) * error})


# -- images: sizes of one data set at equal images seen ----------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class SizeCurve:
    """One model trained on nested subsets of a data set, always with the same number of images seen. `points` are
    sorted by the number of distinct images."""

    label: str
    family: str
    points: tuple[Point, ...]

    @property
    def decades(self) -> float:
        """Range of the numbers of distinct images in powers of ten: log10 of the largest divided by the smallest."""
        return math.log10(self.points[-1].unique_images / self.points[0].unique_images)


def size_curves(evidence: Evidence, *, every: bool = False) -> tuple[SizeCurve, ...]:
    """Return, for each model that was trained on several sizes of a data set, its curve over distinct images, at the
    budget (images seen) at which most of the sizes were evaluated; of several such budgets, the longest.

    Args:
        every: whether to keep points whose network has not begun to learn, for figures.
    """
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
    """Return the names of the sides that have a lower accuracy than the same probe on raw pixels, on average over the
    tasks that raw pixels were scored on. Such networks have lost information, and a comparison with them means little.

    Args:
        sides: the name of each side, and (weight, point) of the terms that its accuracy is the weighted sum of.
        measure: name of the score, such as "headline".
    """
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
    """Return the names of the families of some series, each once, in the order of tables."""
    return sorted({s.family for s in series}, key=family_rank)


def compared_series(evidence: Evidence, *, every: bool = False) -> tuple[Series, ...]:
    """Return the series (models) by which families are compared over compute; () if nothing was evaluated on target
    sets, or if the study only changes single design choices.

    Args:
        every: whether to keep points whose network has not begun to learn, for questions about training itself.
    """
    axes = {axis for p in evidence.points.values() for axis in p.axes}
    if not evidence.headline or (axes and axes <= set(CHOICES)):
        return ()
    return evidence.on_axis("compute", every=every)


def averages(evidence: Evidence) -> list[str]:
    """Return the names of the scores that are averages over tasks: "headline" (main tasks) and, if the study has them,
    "far" (out-of-domain tasks)."""
    return [HEADLINE, FAR] if evidence.far else [HEADLINE]


def with_upstream(evidence: Evidence) -> list[str]:
    return [*averages(evidence), *([UPSTREAM] if UPSTREAM in evidence.measures else [])]
