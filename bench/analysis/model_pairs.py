"""Compares two models, or two families, of one study at equal training compute, B minus A, by the method with which a
report compares families.

Both sides are compared at levels of compute that both were trained with, by `bench.analysis.frontiers`; nothing is
extrapolated. The average over the study's main tasks decides; other tasks are listed separately.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from bench.analysis.comparisons import unreplicated_noise
from bench.analysis.evidence import HEADLINE, UPSTREAM, Evidence, Series
from bench.analysis.frontiers import Gaps, along_compute, common_range
from bench.analysis.side_by_side import AVERAGE, POWER, AtCompute, SideBySide, TaskDifference
from bench.core.errors import UserError
from bench.core.formatting import flops_range
from bench.stats.intervals import SEEDS, z_quantile


def at_compute(evidence: Evidence, a: str, b: str) -> SideBySide:
    """Compare two models or families of a study, B - A, at equal training compute.

    Args:
        a, b: names of models or families.

    Raises:
        UserError: one was trained in several ways, or did not begin to learn; or they have no pre-training set, compute
            or score in common.
    """
    first, second = _sides(evidence, a, b)
    measures = [m for m in evidence.measures if m not in evidence.headline]
    main = HEADLINE if evidence.headline else UPSTREAM
    along = along_compute(evidence, second, first, (b, a), main)
    if along is None:
        low, high = common_range(first, second)
        if low > high:
            ranges = " and ".join(f"{name} with {_range(side)}" for name, side in ((a, first), (b, second)))
            raise UserError(
                f"No training compute in common: {ranges}.",
                "Nothing is extrapolated. Give both budgets that overlap (--horizons); --at images compares at equal "
                "images seen.",
            )
        raise UserError(f"{a} and {b} have no scores of the same tasks and seeds at equal compute.")
    shown = {m: along_compute(evidence, second, first, (b, a), m) for m in (*evidence.headline, *measures)}
    tasks = {m: _contrast(m, gaps) for m, gaps in shown.items() if gaps is not None}
    judged = evidence.headline or (UPSTREAM,)
    return SideBySide(
        tasks=tuple(made for m, made in tasks.items() if m in judged),
        apart=tuple(made for m, made in tasks.items() if m not in judged),
        average=_contrast(AVERAGE, along),
        only_a=0,
        only_b=0,
        other_images=(),
        at="compute",
        span=(along.gaps[0].x, along.gaps[-1].x),
        shots=evidence.shots,
        budgets=tuple(_at(gaps) for gaps in _single(along)),
        changes=along.changes,
    )


def _sides(evidence: Evidence, a: str, b: str) -> tuple[list[Series], list[Series]]:
    """Return the trained variants of both sides. If both were trained on several pre-training sets, the set that most
    of the study's models use is taken.

    Args:
        a, b: names of models or families.

    Raises:
        UserError: a side did not begin to learn, or was trained in several ways; or the sides share no pre-training
            set.
    """
    axis = evidence.on_axis("compute", every=True)
    every = [[s for s in axis if name in (s.last.model, s.last.family)] for name in (a, b)]
    if not all(every):  # a side is not on the compute axis: take the largest set of images that both were trained on
        every = [[s for s in evidence.series if name in (s.last.model, s.last.family)] for name in (a, b)]
        sizes = set.intersection(*({(s.last.data, s.last.num_images) for s in side} for side in every))
        most = max((number for _, number in sizes), default=0)
        every = [[s for s in side if s.last.num_images == most] for side in every]
    trained, every = every, [list(evidence.begun(side)) for side in every]
    if dull := [name for name, all_of, side in zip((a, b), trained, every, strict=True) if all_of and not side]:
        raise UserError(
            f"{' and '.join(dull)} did not begin to learn: the loss is that of chance, or the score that of the "
            "untrained network.",
            "Compare longer runs (--horizons).",
        )
    order = [data for data, _ in Counter(s.last.data for s in axis).most_common()]
    shared = set.intersection(*({s.last.data for s in side} for side in every))
    if not shared:
        raise UserError(f"{a} and {b} were not trained on the same images.", "Compare models of one upstream set.")
    data = min(shared, key=lambda name: (order.index(name) if name in order else len(order), name))
    sides = [[s for s in side if s.last.data == data] for side in every]
    for name, side in zip((a, b), sides, strict=True):
        if len(alike := [s for s in side if s.last.model == name]) > 1:
            ways = ", ".join(s.label for s in alike)
            raise UserError(f"{name} was trained in {len(alike)} ways: {ways}.", "Compare folders that hold one each.")
    return sides[0], sides[1]


def _range(side: Sequence[Series]) -> str:
    return flops_range(min(s.points[0].train_flops for s in side), max(s.last.train_flops for s in side))


def _single(whole: Gaps) -> list[Gaps]:
    """Split the gaps along a range into one `Gaps` for each x, named after the two models that are compared at this
    x."""
    return [
        Gaps(
            first=gap.second_model,
            second=gap.first_model,
            gaps=(gap,),
            mean=gap.estimate,
            corrected=whole.corrected,
            paired=gap.paired,
        )
        for gap in whole.gaps
    ]


def _at(one: Gaps) -> AtCompute:
    (gap,) = one.gaps
    return AtCompute(train_flops=gap.x, a_model=gap.second_model, b_model=gap.first_model, contrast=_contrast("", one))


def _contrast(task: str, gaps: Gaps) -> TaskDifference:
    """Return the mean of B - A along the range, where B is the first side of `gaps`. `task`: name of the score."""
    e, accuracy = gaps.mean, gaps.accuracy
    margins = dict(e.margins)
    if SEEDS in e.excluded:
        margins[SEEDS] = unreplicated_noise(accuracy)
    half = math.hypot(*margins.values())
    return TaskDifference(
        task=task,
        a=accuracy - e.value / 2,
        b=accuracy + e.value / 2,
        estimate=e.value,
        margins=margins,
        detectable=half * (1 + z_quantile(2 * POWER - 1) / z_quantile(e.level)),
        excluded=e.excluded,
        paired=gaps.paired,
        equal=all(gap.estimate.value == 0 for gap in gaps.gaps),
        cells=len(gaps.gaps),
        runs=e.num_seeds,
        draws=e.num_draws,
        test_images=e.num_test,
        level=e.level,
    )
