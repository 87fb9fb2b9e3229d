"""Compares two sides, B minus A (two folders of results, two commits or two models), on the same cells, seeds, few-shot
samples and test images.

Runs are matched first: they must have the same cell (for two models: the same pre-training images), horizon (budget),
seeds and few-shot samples. The mean difference then has three sources of chance, each with its own margin; margins are
added in quadrature, as in `bench.stats.intervals`:

- training seeds: the spread of the seeds' mean differences, with Student's t. The variances of cells are shrunk towards
  each other (`bench.stats.moderated`). For two models of one study, the variances of both are used, shrunk towards
  those of the study's other models. If no run was repeated, the noise of single runs is bounded by
  `bench.analysis.comparisons.UNREPLICATED`;
- few-shot samples: the spread of the samples' mean differences, with Student's t;
- test images: the spread of the mean differences of single images, as in a paired t test, if records say which images
  were right; otherwise the error of two independent test sets, which is larger.

The part of the noise that depends on run and image together is in all three spreads; it is counted once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy import special

from bench.analysis import evidence, lr_sweep
from bench.analysis.comparisons import unreplicated_noise
from bench.analysis.evidence import UPSTREAM
from bench.analysis.study_data import NOT_A_VARIANT, Records, samples
from bench.core.by_key import by_key
from bench.core.errors import UserError
from bench.core.files import canonical
from bench.stats.intervals import (
    BORROW_DF,
    CHANGE,
    DRAWS,
    IMAGES,
    POINT_LEVEL,
    SEEDS,
    Samples,
    average,
    difference,
    moderated_variance,
    pool,
    seed_error,
    sum_of_errors,
)
from bench.stats.moderated import Moderated
from bench.stats.paired import image_variance, pair
from bench.study.cell import to_json
from bench.study.record import Record

AVERAGE = "average"
POWER = 0.8
"""Probability with which the smallest detectable difference is detected; it is 0.72 where the estimate of that
difference has an error itself (simulated)."""


class VariantAtHorizon(NamedTuple):
    """A trained variant (a model and how it is trained, whatever the seed) at one budget. `variant`: a key that is
    equal on both sides (`same_cell` or `same_images`); `images_seen`: the budget, in images."""

    variant: Hashable
    images_seen: int


Table = dict[VariantAtHorizon, dict[str, Samples]]
"""Scores of one side, by variant at a horizon, and then by measure."""


@dataclass(frozen=True, kw_only=True)
class TaskDifference:
    """The difference in accuracy B - A on one task, or averaged over tasks.

    Attributes:
        task: name of the score, or `AVERAGE`.
        a, b: mean accuracies of the two sides, 0 to 1.
        estimate: their difference, b - a.
        margins: source of chance -> half-width that it contributes to the interval.
        detectable: the smallest true difference that would be found with a probability of `POWER`.
        excluded: sources of chance that cannot be estimated from the records; for training seeds, `margins` then has an
            assumed value.
        paired: whether test images were compared one by one.
        equal: whether all scores of both sides are the same.
        cells: number of variants at a budget that were compared.
        runs: number of pairs of runs (seeds) behind the difference.
        draws, test_images: numbers of few-shot samples and of test images behind each score.
        level: confidence level of the interval.
    """

    task: str
    a: float
    b: float
    estimate: float
    margins: Mapping[str, float]
    detectable: float
    excluded: tuple[str, ...]
    paired: bool
    equal: bool
    cells: int
    runs: int
    draws: int
    test_images: int
    level: float = POINT_LEVEL

    @property
    def half(self) -> float:
        return math.hypot(*self.margins.values())

    @property
    def low(self) -> float:
        return max(self.estimate - self.half, CHANGE[0])

    @property
    def high(self) -> float:
        return min(self.estimate + self.half, CHANGE[1])

    @property
    def verdict(self) -> str:
        """Whether B is "better" or "worse" than A, if the interval excludes 0; otherwise "no difference", or "equal" if
        all scores are the same."""
        if self.equal:
            return "equal"
        return "worse" if self.high < 0 else "better" if self.low > 0 else "no difference"


@dataclass(frozen=True, kw_only=True)
class AtCompute:
    """The difference between two sides, averaged over tasks, at one amount of training compute.

    Attributes:
        train_flops: the compute, in FLOP.
        a_model, b_model: the model of each side that is compared at this compute.
        contrast: the difference.
    """

    train_flops: float
    a_model: str
    b_model: str
    contrast: TaskDifference


@dataclass(frozen=True, kw_only=True)
class SideBySide:
    """The result of comparing two sides, A and B. A place is a trained variant at a budget.

    Attributes:
        tasks: the difference on each task that is averaged: the study's main tasks or, if it has none, all tasks except
            pre-training accuracy.
        average: the difference averaged over `tasks`, on which the verdict rests.
        only_a, only_b: number of places that only one side has.
        other_images: tasks that were left out because the test images of the two sides differ.
        partly: number of places that the average leaves out because a side lacks one of the tasks there.
        apart: the differences on tasks that are not averaged.
        at: what is equal on both sides: "cells", "images" (seen), or "compute".
        span: the least and the most training FLOPs (if `at` is "compute"), or images seen, that were compared.
        shots: labelled images per class of few-shot tasks; None without such tasks.
        budgets: if `at` is "compute", the average at each level of compute.
        changes: whether the difference depends on compute.
    """

    tasks: tuple[TaskDifference, ...]
    average: TaskDifference
    only_a: int
    only_b: int
    other_images: tuple[str, ...]
    partly: int = 0
    apart: tuple[TaskDifference, ...] = ()
    at: str = "cells"
    span: tuple[float, float] = (0.0, 0.0)
    shots: int | None = None
    budgets: tuple[AtCompute, ...] = ()
    changes: bool = False

    @property
    def verdict(self) -> str:
        """The verdict on the average ("better", "worse", …), or "order changes" if each side is ahead at some compute
        by more than the interval."""
        decided = {budget.contrast.verdict for budget in self.budgets}
        return "order changes" if {"better", "worse"} <= decided else self.average.verdict


def same_cell(record: Record) -> Hashable:
    """Return a key that is equal for two runs of the same cell, even if their code or its revision differs."""
    return canonical({key: value for key, value in to_json(record.cell).items() if key not in NOT_A_VARIANT})


def same_images(record: Record) -> Hashable:
    """Return a key that is equal for runs, of whatever model, on the same pre-training images."""
    return canonical([record.cell.data, record.cell.num_images, record.cell.image_size, record.cell.channels])


def common_shots(*sides: Sequence[Record]) -> int | None:
    """Return the number of labelled images per class at which all sides have few-shot scores: ten if possible, else the
    largest; None if they share none."""
    known = ({s.shots for record in side for h in record.horizons for s in h.scores if s.shots} for side in sides)
    return evidence.shown_shots(set.intersection(*known))


def table(records: Sequence[Record], key: Callable[[Record], Hashable], *, shots: int | None) -> Table:
    """Return the accuracies of one side, by trained variant and budget and then by score. Scores that another cell
    supersedes are left out; if models are compared (`key` is `same_images`), so are learning rates that a sweep
    rejects.

    Args:
        records: the runs of this side.
        key: gives variants their key: `same_cell`, or `same_images` to compare two models.
        shots: labelled images per class of few-shot scores.

    Raises:
        UserError: two recipes have the same key.
    """
    analysed = evidence.build(Records(suite="", records=tuple(records)))
    if key is same_images:
        analysed = lr_sweep.without_rejected(analysed)
    kept = set(analysed.horizons["directory"])
    variants = {record.directory: key(record) for record in records if record.directory in kept}
    cells: dict[Hashable, Record] = {}
    for record in records:
        if record.directory in variants:
            first = cells.setdefault(variants[record.directory], record)
            if same_cell(first) != same_cell(record):
                raise UserError(
                    f"{first.directory} and {record.directory} train a model in two ways.",
                    "Compare folders that hold one of them.",
                )
    horizons = analysed.horizons.assign(variant=analysed.horizons["directory"].map(variants))
    made: Table = {}
    for (variant, images, measure, _), values in samples(horizons, analysed.accuracies_at(shots).scores).items():
        if images > 0:
            made.setdefault(VariantAtHorizon(variant, images), {})[measure] = values
    return made


def compare(
    a: Table,
    b: Table,
    *,
    others: Table | None = None,
    headline: Sequence[str] = (),
    shots: int | None = None,
    at: str = "cells",
) -> SideBySide:
    """Compare two sides, B - A, on each task and on average.

    Args:
        a, b: scores of the two sides, from `table`.
        others: scores of the study that both sides are from, from `table` with the key `same_cell`. If they have more
            repeated runs than the two sides, the variance between seeds is taken from them. None: there are none.
        headline: the tasks that are averaged, as far as they were scored; (): all.
        shots: labelled images per class of few-shot tasks.
        at: what is equal on both sides: "cells" or "images" (seen).

    Raises:
        UserError: the sides have no run, budget, seed and task in common, or their test images differ.
    """
    items: dict[str, dict[VariantAtHorizon, tuple[Samples, Samples]]] = {}
    other_images: set[str] = set()
    for place in a.keys() & b.keys():
        for measure in a[place].keys() & b[place].keys():
            ours, theirs = a[place][measure], b[place][measure]
            if _other_images(ours, theirs):
                other_images.add(measure)
            elif difference(theirs, ours) is not None:
                items.setdefault(measure, {})[place] = (ours, theirs)
    items = {measure: sides for measure, sides in sorted(items.items()) if measure not in other_images}
    if not items:
        if other_images:
            raise UserError(f"The two sides differ in the test images of {', '.join(sorted(other_images))}.")
        budgets = [", ".join(f"{n:,}" for n in sorted({place.images_seen for place in side})) for side in (a, b)]
        raise UserError(
            "The two sides have no run, budget, seed and task in common.",
            f"A is read at {budgets[0] or 'no'} images, B at {budgets[1] or 'no'}: give both the same "
            "--data and --horizons, or compare the same runs.",
        )
    judged = [measure for measure in headline if measure in items]
    judged = judged or [measure for measure in items if measure != UPSTREAM] or list(items)
    shared = set.intersection(*(set(items[measure]) for measure in judged))
    if not shared:
        raise UserError("No run was evaluated on every task on both sides.", "Run both with the same --tasks.")
    whole = [(place, items[measure][place], measure) for measure in judged for place in shared]
    single = {
        measure: contrast(
            measure,
            [(place, both, measure) for place, both in sides.items()],
            borrowed=seed_variance_of(others or {}, [measure]),
        )
        for measure, sides in items.items()
    }
    seen = sorted(place.images_seen for place in shared)
    return SideBySide(
        tasks=tuple(single[measure] for measure in judged),
        apart=tuple(made for measure, made in single.items() if measure not in judged),
        average=contrast(AVERAGE, whole, borrowed=seed_variance_of(others or {}, judged)),
        at=at,
        span=(seen[0], seen[-1]),
        shots=shots,
        only_a=len(a.keys() - b.keys()),
        only_b=len(b.keys() - a.keys()),
        partly=len(a.keys() & b.keys()) - len(shared),
        other_images=tuple(sorted(other_images)),
    )


def _other_images(a: Samples, b: Samples) -> bool:
    if a.correct_SD is None or b.correct_SD is None:
        return a.num_test != b.num_test
    return a.correct_SD.flat[0].content_hash != b.correct_SD.flat[0].content_hash


def seed_variance_of(others: Table, measures: Sequence[str]) -> Moderated | None:
    """Return the variances between seeds, by model, of the mean over the scores `measures`, shrunk towards each other
    (`bench.stats.moderated`); None if nothing was repeated."""
    known = ([scores[m] for m in measures] for scores in others.values() if all(m in scores for m in measures))
    return pool(made for parts in known if (made := average(parts)) is not None)


def contrast(
    task: str,
    items: Iterable[tuple[VariantAtHorizon, tuple[Samples, Samples], str]],
    *,
    borrowed: Moderated | None = None,
) -> TaskDifference:
    """Return the mean of B - A over all items.

    Args:
        task: name of the result.
        items: (variant at a budget, (scores of A, scores of B), name of the score).
        borrowed: variances between seeds of single runs, by model. They take the place of the variances of the
            differences if they have more degrees of freedom. None: there are none.
    """
    known = sorted(((place, both, measure) for place, both, measure in items), key=lambda item: (str(item[0]), item[2]))
    gaps = [difference(b, a) for _, (a, b), _ in known]
    diffs = [gap for gap in gaps if gap is not None]
    number = len(known)
    errors: dict[str, tuple[float, float]] = {}  # standard error and degrees of freedom by source
    excluded: list[str] = []
    a, b = (float(np.mean([sides[which].mean for _, sides, _ in known])) for which in (0, 1))

    variants = [place.variant for place, *_ in known]
    of_images, shared, paired = _image_variance([(measure, both) for _, both, measure in known])
    seeds = _by_label(
        [(variant, gap.seeds, gap.values_SD.mean(axis=1)) for variant, gap in zip(variants, diffs, strict=True)]
    )
    by_seed = _seed_errors(seeds, known, borrowed) if seeds else []
    if by_seed and all(df for _, df, _ in by_seed):
        errors[SEEDS] = sum_of_errors([(error, df) for error, df, _ in by_seed], [model for *_, model in by_seed])
    elif seeds:
        excluded.append(SEEDS)
    draws = _by_label([("", gap.draws, gap.values_SD.mean(axis=0)) for gap in diffs if gap.draws])
    for values in draws.values():
        drawn = sum(bool(gap.draws) for gap in diffs) / number
        if len(values) > 1:
            variance = drawn**2 * float(np.var(values, ddof=1)) / len(values)
            errors[DRAWS] = math.sqrt(max(0.0, variance - shared * (SEEDS in errors))), len(values) - 1
        else:
            excluded.append(DRAWS)
    errors[IMAGES] = math.sqrt(max(0.0, of_images - shared * bool(errors))), math.inf

    margins = {source: _quantile(0.5 + POINT_LEVEL / 2, df) * error for source, (error, df) in errors.items()}
    needed = {
        source: (_quantile(0.5 + POINT_LEVEL / 2, df) + _quantile(POWER, df)) * error
        for source, (error, df) in errors.items()
    }
    if SEEDS in excluded:
        margins[SEEDS] = unreplicated_noise((a + b) / 2) / math.sqrt(len(seeds))
        needed[SEEDS] = margins[SEEDS] * (1 + _quantile(POWER, math.inf) / _quantile(0.5 + POINT_LEVEL / 2, math.inf))
    return TaskDifference(
        task=task,
        a=a,
        b=b,
        estimate=float(np.mean([gap.mean for gap in diffs])),
        margins=margins,
        detectable=math.hypot(*needed.values()),
        excluded=tuple(excluded),
        paired=paired,
        equal=all(not gap.values_SD.any() for gap in diffs),
        cells=len({place for place, *_ in known}),
        runs=sum(map(len, seeds.values())),
        draws=max((len(gap.draws) for gap in diffs), default=0),
        test_images=min(gap.num_test for gap in diffs),
    )


def _seed_errors(
    seeds: Mapping[Hashable, np.ndarray],
    items: Sequence[tuple[VariantAtHorizon, tuple[Samples, Samples], str]],
    borrowed: Moderated | None,
) -> list[tuple[float, float, Hashable]]:
    """Return, for each variant's part of the mean difference, (standard error over training seeds, degrees of freedom,
    model from whose variance the error comes).

    Args:
        seeds: variant -> mean difference of every seed.
        items: (variant at a budget, (scores of A, scores of B), name of the score).
        borrowed: variances between seeds of single runs, by model, which are used if they have more degrees of freedom
            than the differences; None: there are none.
    """
    members = {variant: [item for item in items if item[0].variant == variant] for variant in seeds}
    shares = {variant: len(of) / len(items) for variant, of in members.items()}
    if borrowed is not None and borrowed.df >= max(BORROW_DF, sum(len(x) - 1 for x in seeds.values()) + 1):
        sides = [(variant, side) for variant in seeds for side in (0, 1)]
        apart = [(variant, _run_error(members[variant], side, borrowed)) for variant, side in sides]
        models = [members[variant][0][1][side].model for variant, side in sides]
        return [
            (shares[v] * error / math.sqrt(len(seeds[v])), df, model)
            for (v, (error, df)), model in zip(apart, models, strict=True)
        ]
    made = {}
    for variant, of in members.items():
        accuracies = [samples.mean for _, both, _ in of for samples in both]
        made[variant] = Samples(
            values_SD=seeds[variant][:, None],
            seeds=tuple(range(len(seeds[variant]))),
            draws=(),
            image_error=0.0,
            num_test=min(samples.num_test for _, both, _ in of for samples in both),
            model=of[0][1][0].model,
            trunk=variant,
            images_seen=max(samples.images_seen for _, both, _ in of for samples in both),
            bounds=CHANGE,
            around=float(np.mean(accuracies)),
        )
    pooled = pool(made.values())
    errors = {variant: seed_error(samples, pooled) for variant, samples in made.items()}
    return [(shares[variant] * error, df, made[variant].model) for variant, (error, df) in errors.items()]


def _run_error(
    items: Sequence[tuple[VariantAtHorizon, tuple[Samples, Samples], str]], side: int, borrowed: Moderated
) -> tuple[float, float]:
    """Return the standard deviation between single runs (seeds) of one side's mean over tasks, and its degrees of
    freedom. It is averaged over budgets, as if their deviations were fully correlated.

    Args:
        items: (variant at a budget, (scores of A, scores of B), name of the score).
        side: 0 for A, 1 for B.
        borrowed: variances between seeds of single runs, by model.
    """
    by_place = by_key((place, both[side]) for place, both, _ in items)
    means = [made for parts in by_place.values() if (made := average(parts)) is not None]
    variances = [moderated_variance(mean, borrowed) for mean in means]
    return float(np.mean([math.sqrt(variance) for variance, _ in variances])), min(df for _, df in variances)


def _by_label(parts: Sequence[tuple[Hashable, tuple[int, ...], np.ndarray]]) -> dict[Hashable, np.ndarray]:
    """Return group -> array with the mean, over the parts of the group, of the value of each label (a seed or a
    few-shot sample). Labels that some part of the group lacks are left out.

    Args:
        parts: (group, labels, value of each label).
    """
    groups = by_key((group, (labels, values)) for group, labels, values in parts if labels)
    means = {}
    for group, members in groups.items():
        shared = [label for label in members[0][0] if all(label in labels for labels, _ in members)]
        rows = [[values[labels.index(label)] for label in shared] for labels, values in members]
        means[group] = np.mean(rows, axis=0)
    return means


def _image_variance(sides: Sequence[tuple[str, tuple[Samples, Samples]]]) -> tuple[float, float, bool]:
    """Return the variance of the mean difference over test images, the part of it that the spread of runs contains as
    well, and whether every difference was compared image by image.

    Different test sets are independent. Differences on the same test images are averaged image by image; if it is
    unknown which images were right, the errors of one score are added as if fully correlated.

    Args:
        sides: (name of the score, (scores of A, scores of B)) of each difference.
    """
    sets: dict[str, np.ndarray] = {}
    groups: dict[str, np.ndarray | None] = {}
    unpaired: dict[str, float] = {}
    shared = 0.0
    for measure, (a, b) in sides:
        paired = pair(b, a)
        if paired is None:
            unpaired[measure] = unpaired.get(measure, 0.0) + math.hypot(a.image_error, b.image_error)
        else:
            before, groups[paired.content_hash] = sets.get(paired.content_hash), paired.groups_M
            sets[paired.content_hash] = paired.difference_M if before is None else before + paired.difference_M
            shared += paired.shared
    squares = sum(image_variance(x_M, groups[content]) for content, x_M in sets.items())
    squares += sum(e**2 for e in unpaired.values())
    return squares / len(sides) ** 2, shared / len(sides) ** 2, not unpaired


def _quantile(probability: float, df: float) -> float:
    return float(special.ndtri(probability) if math.isinf(df) else special.stdtrit(df, probability))
