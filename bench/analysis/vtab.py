"""Computes means over the task groups of a benchmark (VTAB: natural, specialised, structured), and over all its
tasks."""

from __future__ import annotations

from collections.abc import Sequence

from bench.analysis.evidence import Evidence, PointKey
from bench.core.by_key import by_key
from bench.stats.intervals import Estimate, Samples, average, estimate_all

GROUP_ORDER = ("natural", "specialised", "structured")


def groups_of(evidence: Evidence) -> dict[str, tuple[str, ...]]:
    """Return name of a group of tasks -> names of its scores, sorted; {} if no score belongs to a group."""
    named = evidence.scores[["group", "measure"]].dropna(subset="group").drop_duplicates()
    pairs = zip(named["group"].map(str), named["measure"].map(str), strict=True)
    members = by_key((group, measure) for group, measure in pairs if measure in evidence.measures)
    known = [group for group in GROUP_ORDER if group in members]
    return {group: tuple(sorted(members[group])) for group in [*known, *sorted(set(members) - set(known))]}


def means(evidence: Evidence, measures: Sequence[str]) -> dict[PointKey, Estimate]:
    """Return the unweighted mean of the scores `measures` at every trained point that has all of them.

    The mean is taken for each seed, so that noise that tasks share is kept. Variances between seeds are shrunk towards
    those of the other points (`bench.stats.moderated`).
    """
    samples: dict[PointKey, Samples] = {}
    for point in evidence.points.values():
        parts = [evidence.samples(point, measure) for measure in measures]
        known = [part for part in parts if part is not None]
        mean = average(known) if point.trained and known and len(known) == len(parts) else None
        if mean is not None:
            samples[point.key] = mean
    return estimate_all(samples, level=evidence.level)
