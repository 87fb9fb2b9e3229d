"""Compares two ways to train for several budgets: cool-down branches of one trunk, and a separate training run for each
budget.

The trunk is a run at a learning rate that does not fall to zero; a branch leaves it before a budget and cools the
learning rate down to zero. The two ways are compared in accuracy, pair by pair, and in the compute spent.
"""

from __future__ import annotations

from dataclasses import dataclass

from bench.analysis.comparisons import Pair, PairedDifference, compare
from bench.analysis.evidence import HEADLINE, UPSTREAM, Evidence, Series, family_rank
from bench.analysis.finding import Item
from bench.analysis.scaling_laws import recipe
from bench.stats.intervals import SEEDS
from bench.study.cell import Recipe
from bench.study.record import Cost

AXIS = "branching"  # axis of the cells that are compared here
BRANCH, SAME = "branch", "same"
"""Ways to train for several budgets: BRANCH, cool-down branches of one trunk; SAME, a separate run for each budget with
the schedule of a branch. Any other way is named after the shape of its cool-down over the whole run, like "cosine"."""


@dataclass(frozen=True, kw_only=True)
class Saving(Item):
    """What it costs to train one model on cool-down branches of one trunk, as a fraction of separate runs for the same
    budgets.

    Attributes:
        budgets: number of budgets.
        seeds: number of seeds that were trained in both ways; costs are summed over these.
        flops: the fraction of training compute, trunk included.
        seconds: the fraction of training time, trunk included.
    """

    model: str
    family: str
    budgets: int
    seeds: int
    flops: float
    seconds: float


def way(used: Recipe) -> str:
    """Return the way in which the recipe `used` trains for several budgets: `BRANCH` (branches of one trunk), `SAME`
    (separate runs with the schedule of a branch), or the shape of a cool-down over the whole run, such as "cosine"."""
    if used.schedule == BRANCH:
        return BRANCH
    return used.cooldown_shape if used.cooldown == 1 else SAME


def contrasts(evidence: Evidence, measure: str) -> dict[str, list[PairedDifference]]:
    """Return, for every way of training other than branches, by its name: the score (`measure`) of each model on a
    branch minus its score when trained in this way, at every budget and on all seeds that both have."""
    pairs: dict[str, list[Pair]] = {}
    for ways in _by_model(evidence).values():
        for name, other in ways.items() if BRANCH in ways else ():
            own = {p.images_seen: p for p in other.points}
            pairs.setdefault(name, []).extend(
                Pair(contrast="own training", model=p.model, point=p, base=own[p.images_seen], to_x=p.images_seen)
                for p in ways[BRANCH].points
                if name != BRANCH and p.images_seen in own
            )
    ordered = sorted(pairs, key=lambda name: (name != SAME, name))
    return {name: compare(evidence, pairs[name], measure) for name in ordered if pairs[name]}


def measures(evidence: Evidence) -> list[str]:
    """Return the names of the scores to compare: upstream (pre-training) accuracy first, which needs no probe, then the
    headline (the mean over the study's main tasks)."""
    return [*([UPSTREAM] if UPSTREAM in evidence.measures else []), *([HEADLINE] if evidence.headline else [])]


def identical(c: PairedDifference) -> bool:
    """Return whether the two sides of a difference have the same scores, on average and for every seed."""
    return c.estimate.value == 0 and c.estimate.margins.get(SEEDS, 1.0) == 0


def savings(evidence: Evidence) -> list[Saving]:
    """Return what branches cost relative to separate runs with the schedule of a branch, for each model that was
    trained in both ways."""
    spent: dict[tuple[str, str, int], dict[str, dict[int, Cost]]] = {}
    for record in evidence.records.records:
        cell = record.cell
        if AXIS in cell.axes and record.status == "complete":
            key = cell.model, record.model.family, sum(horizon > 0 for horizon in cell.horizons)
            spent.setdefault(key, {}).setdefault(way(cell.recipe), {})[cell.seed] = record.cost
    made = []
    for (model, family, budgets), ways in spent.items():
        branched, own = ways.get(BRANCH, {}), ways.get(SAME, {})
        both = sorted(branched.keys() & own.keys())
        if both:
            flops, seconds = (
                sum(read(branched[seed]) for seed in both) / sum(read(own[seed]) for seed in both)
                for read in (lambda cost: cost.spent_flops.dense or 0, lambda cost: cost.seconds.train or 0)
            )
            made.append(
                Saving(model=model, family=family, budgets=budgets, seeds=len(both), flops=flops, seconds=seconds)
            )
    return sorted(made, key=lambda s: (family_rank(s.family), s.model))


def _by_model(evidence: Evidence) -> dict[tuple[str, str], dict[str, Series]]:
    """Return (model, data set) -> way of training -> series, for the cells on the axis "branching" of the study."""
    ways: dict[tuple[str, str], dict[str, Series]] = {}
    for series in evidence.series:
        used = recipe(evidence, series.last)
        if used is not None and any(AXIS in p.axes for p in series.points):
            ways.setdefault((series.last.model, series.last.data), {})[way(used)] = series
    return ways
