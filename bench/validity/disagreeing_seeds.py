"""Finds models whose scores differ unusually much between seeds."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from bench.analysis.check import Check, grouped, names
from bench.analysis.evidence import HEADLINE, Evidence
from bench.analysis.findings import Level, ValidityCheck
from bench.core.formatting import plural
from bench.stats.intervals import SEEDS, t_quantile

SEEDS_DISAGREE = "seeds disagree"
"""`names`: models whose seeds differ, at some point, more than `limit` times as much as at the study's median point;
`high`: the widest interval's half-width due to seeds, in accuracy; `count`: number of seeds there; `low`: half-width
with one more seed; `groups`: cells of these points, by model."""
UNUSUAL_SPREAD_RATIO = 1.5  # ratio to the standard deviation between seeds at the study's median point, in log-odds
WIDE_HALF_WIDTH = 0.04  # only intervals with a larger half-width due to seeds, in accuracy, are reported
MIN_MODELS = 3  # with fewer models, none can be called unusual


def find(evidence: Evidence) -> Iterator[ValidityCheck]:
    """Yield one result that names the models whose seeds differ much more than is usual in the study, so that their
    intervals are wide and a further seed would help; none if there are no such models."""
    pooled = evidence.pool(HEADLINE)
    if pooled is None or len(pooled.models) < MIN_MODELS:
        return
    points = [p for p in evidence.points.values() if p.trained]
    samples = {p.key: s for p in points if (s := evidence.samples(p, HEADLINE)) is not None and len(s.seeds) > 1}
    spread = {key: math.sqrt(pooled.of(s.model, s.log_odds, s.log_images)[0]) for key, s in samples.items()}
    limit = UNUSUAL_SPREAD_RATIO * float(np.median(list(spread.values())))
    wide: dict[str, dict[str, tuple[float, float, int]]] = {}  # model, variant: half-width, with one more seed, seeds
    for point in points:
        e = evidence.estimate(point, HEADLINE)
        if e is None or spread.get(point.key, 0.0) <= limit or e.margins[SEEDS] <= WIDE_HALF_WIDTH:
            continue
        t_now, t_then = (t_quantile(df, e.level) for df in (e.seed_df, e.seed_df + 1))
        then = e.margins[SEEDS] * math.sqrt(e.num_seeds / (e.num_seeds + 1)) * t_then / t_now
        widest = wide.setdefault(point.model, {})
        widest[point.variant] = max(widest.get(point.variant, (0.0, 0.0, 0)), (e.margins[SEEDS], then, e.num_seeds))
    if wide:
        half, then, seeds = max(max(by_variant.values()) for by_variant in wide.values())
        named = {model: [n for variant in by for n in evidence.cells.get(variant, ())] for model, by in wide.items()}
        yield ValidityCheck(
            kind=SEEDS_DISAGREE,
            level=Level.NOTE,
            names=tuple(sorted(wide)),
            count=seeds,
            limit=UNUSUAL_SPREAD_RATIO,
            low=then,
            high=half,
            groups=grouped(named),
        )


def _disagree(c: ValidityCheck) -> str:
    cells = round(sum(len(values) for _, values in c.groups) / (c.count or 1))
    return (
        f"Seeds of {names(c)} differ more than {c.limit:g} times as much as is usual here: with {c.count} seeds "
        f"their intervals reach ± {100 * (c.high or 0):.0f} points. One seed more ({plural(cells, 'run')}) should "
        f"leave ± {100 * (c.low or 0):.0f}."
    )


CHECK = Check(
    order=3,
    find=find,
    words={
        SEEDS_DISAGREE: _disagree,
    },
)
