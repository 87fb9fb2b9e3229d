"""Compares trained networks with two baselines: the same networks before training, and raw pixels."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from bench.analysis.comparisons import (
    Pair,
    PairedDifference,
    averages,
    compare,
    compared_series,
    counts,
    families_of,
    mean_finding,
    overall,
)
from bench.analysis.evidence import Evidence, Series
from bench.analysis.finding import Difference, Finding

Against = Callable[[Evidence, Sequence[Series], str], list[PairedDifference]]
"""(evidence, series, measure) -> for each model, its score at its longest budget minus that of its baseline."""


def against_untrained(evidence: Evidence, series: Sequence[Series], measure: str) -> list[PairedDifference]:
    """Return, for each model, its score (`measure`) at its longest budget minus that of the same network before
    training."""
    pairs = [Pair(contrast="untrained", model=s.label, point=s.last, base=s.untrained) for s in series if s.untrained]
    return compare(evidence, pairs, measure)


def against_pixels(evidence: Evidence, series: Sequence[Series], measure: str) -> list[PairedDifference]:
    """Return, for one model of each family, its score (`measure`) at its longest budget minus that of the same probe on
    raw pixels instead of features. The model is the one with the most compute; a model chosen by its score would look
    better than it is."""
    pixels = evidence.pixels
    names = families_of(series)
    largest = [max((s for s in series if s.family == name), key=lambda s: s.last.train_flops) for name in names]
    pairs = [Pair(contrast="raw pixels", model=s.label, point=s.last, base=pixels) for s in largest if pixels]
    return compare(evidence, pairs, measure, apart=True)


def beats(evidence: Evidence, name: str, against: Against) -> Iterator[Finding]:
    """Yield findings on whether trained networks beat a baseline: one for each average over tasks ("headline", "far")
    and each family, with the difference on each task as evidence.

    Args:
        name: name of the question that the findings answer.
        against: computes the differences from the baseline, such as `against_pixels`.
    """
    series = compared_series(evidence, every=True)  # networks that have not begun to learn count here
    for measure in averages(evidence) if series else ():
        compared = against(evidence, series, measure)
        single = {task: against(evidence, series, task) for task in evidence.parts(measure)}
        for family in families_of(series):
            mine = [c for c in compared if c.family == family]
            by_task = [[c for c in single[task] if c.family == family] for task in single]
            if mine:
                means = [_task_mean(task) for task in by_task if task and len(by_task) > 1]
                items = [*means, *(c.item for task in by_task for c in task)]
                yield mean_finding(name, [family], mine, evidence=items)


def _task_mean(differences: Sequence[PairedDifference]) -> Difference:
    mean, decided = overall(differences)
    return replace(
        differences[0].item,
        model="",
        estimate=mean.value,
        low=mean.low,
        high=mean.high,
        verdict=decided,
        excluded=mean.excluded,
        n=counts(mean, models=len(differences)),
        train_flops=None,
    )
