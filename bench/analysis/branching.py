"""Branches from one trunk against trainings of their own: accuracy, pair by pair, and the compute that was spent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bench.analysis import compare
from bench.analysis.answers.answer import Answer
from bench.analysis.compare import Comparison, Verdict
from bench.analysis.evidence import HEADLINE, UPSTREAM, Evidence, Series, family_rank
from bench.core.formatting import count, join, plural, points
from bench.core.record import Cost
from bench.core.spec import Recipe
from bench.report.layout import Column, Table
from bench.stats.intervals import SEEDS

AXIS = "branching"  # the label of the cells that ask this
MARGIN = 0.01  # accuracy that branches may lack and still count as equal
BRANCH = "branch"
SEPARATE, WHOLE = "apart, same schedule", "apart, {} schedule"


@dataclass(frozen=True, kw_only=True)
class Saving:
    """What one model's branches cost, as a fraction of the same budgets trained apart.

    `flops` and `seconds` are ratios of what was spent in training, summed over the seeds that both have.
    """

    model: str
    family: str
    horizons: int
    seeds: int
    flops: float
    seconds: float


def way(recipe: Recipe) -> str:
    """In words, how a recipe reaches several budgets."""
    if recipe.schedule == BRANCH:
        return BRANCH
    return WHOLE.format(recipe.cooldown_shape) if recipe.cooldown == 1 else SEPARATE


def contrasts(evidence: Evidence, measure: str) -> dict[str, list[Comparison]]:
    """Branch minus each other way at every horizon that both were read at, on the same seeds: way -> comparisons."""
    found: dict[str, list[tuple[str, str, Any, Any]]] = {}
    for ways in _by_model(evidence).values():
        if BRANCH not in ways:
            continue
        for name, other in ways.items():
            apart = {p.images_seen: p for p in other.points}
            found.setdefault(name, []).extend(
                (p.model, f"branch − {name}", p, apart[p.images_seen])
                for p in ways[BRANCH].points
                if name != BRANCH and p.images_seen in apart
            )
    ordered = sorted(found, key=lambda name: (name != SEPARATE, name))
    return {name: compare.differences(evidence, found[name], measure) for name in ordered if found[name]}


def measures(evidence: Evidence) -> list[str]:
    """Upstream first: it is read with no probe between."""
    upstream = [UPSTREAM] if UPSTREAM in evidence.measures else []
    return [*upstream, *([HEADLINE] if evidence.headline else [])]


def answers(evidence: Evidence) -> list[Answer]:
    """Whether branches are as accurate, and what they save. Empty for a study without both."""
    made = []
    for measure in measures(evidence):
        on = "upstream" if measure == UPSTREAM else f"on {join(evidence.parts(measure))}"
        question = f"Are branches from one trunk as accurate as training each budget apart, {on}?"
        for way, found in contrasts(evidence, measure).items():
            mean, beyond = compare.overall(found)
            better, worse = (sum(c.verdict == wanted for c in found) for wanted in ("yes", "no"))
            identical = all(same(c) for c in found)
            verdict: Verdict = "yes" if identical or mean.low > -MARGIN else beyond
            sentence = (
                f"The same scores to the last digit at every budget ({mean.counts}): a branch is the training to its "
                "budget, with the trunk shared."
                if identical
                else f"Branches minus trained {way}: {points(mean.value, mean.low, mean.high)} on average over "
                f"{plural(len(found), 'budget')} of {plural(len({c.subject for c in found}), 'model')} ({mean.counts})"
                f"; beyond their own interval: {better} budgets higher, {worse} lower. Up to one point lower counts as "
                "equal."
            )
            made.append(Answer(question=question, subject=way.partition(", ")[2], verdict=verdict, sentence=sentence,
                               estimate=mean.value, low=mean.low, high=mean.high, unit="share",
                               n=len(found)))  # fmt: skip
    for saving in savings(evidence):
        sentence = (
            f"{plural(saving.horizons, 'budget')} cost {saving.flops:.2f} of the compute, and {saving.seconds:.2f} of "
            f"the measured training time, of the same budgets trained apart ({plural(saving.seeds, 'seed')})."
        )
        made.append(Answer(question="Do branches save training?", subject=saving.model, sentence=sentence,
                           verdict="yes" if saving.flops < 1 else "no", estimate=saving.flops, unit="share",
                           n=saving.seeds))  # fmt: skip
    return made


def table(evidence: Evidence) -> Table | None:
    """One row per model and budget: upstream accuracy of the branch, and its difference to each other way."""
    measure = measures(evidence)[:1]
    found = contrasts(evidence, measure[0]) if measure else {}
    rows: dict[tuple[str, int], dict[str, Any]] = {}
    for way, comparisons in found.items():
        for c in comparisons:
            row = rows.setdefault((c.subject, c.point.images_seen), {"model": c.subject, "seen": c.point.images_seen})
            row |= {"accuracy": evidence.estimate(c.point, measure[0]), way: c.estimate}
    if not rows:
        return None
    columns = (
        Column(key="model", heading="Model", numeric=False), Column(key="seen", heading="Images seen", text=count),
        Column(key="accuracy", heading=f"Branch, {measure[0]} [%]"),
        *(Column(key=way, heading=f"Branch − {way} [points]") for way in found),
    )  # fmt: skip
    saved = "; ".join(f"{s.model} {s.flops:.2f} for {s.horizons} budgets" for s in savings(evidence))
    return Table(name="branching", title="Branches against trainings of their own", columns=columns,
                 rows=tuple(rows.values()), note=f"Compute spent, branches over apart: {saved}.")  # fmt: skip


def same(c: Comparison) -> bool:
    """Whether both sides scored the same on average and on every seed."""
    return c.estimate.value == 0 and c.estimate.margins.get(SEEDS, 1.0) == 0


def savings(evidence: Evidence) -> list[Saving]:
    """For each model that was trained both ways with the same shape."""
    spent: dict[tuple[str, str, int], dict[str, dict[int, Cost]]] = {}
    for record in evidence.records.records:
        cell = record.cell
        kind = way(cell.recipe)
        if AXIS in cell.axes and record.status == "complete" and kind in (BRANCH, SEPARATE):
            key = (cell.model, record.model.family, sum(horizon > 0 for horizon in cell.horizons))
            spent.setdefault(key, {}).setdefault(kind, {})[cell.seed] = record.cost
    made = []
    for (model, family, budgets), ways in spent.items():
        both = sorted(ways.get(BRANCH, {}).keys() & ways.get(SEPARATE, {}).keys())
        if both:
            flops, seconds = (
                sum(read(ways[BRANCH][seed]) for seed in both) / sum(read(ways[SEPARATE][seed]) for seed in both)
                for read in (lambda cost: cost.spent_flops.dense or 0, lambda cost: cost.seconds.train or 0)
            )
            made.append(Saving(model=model, family=family, horizons=budgets, seeds=len(both), flops=flops,
                               seconds=seconds))  # fmt: skip
    return sorted(made, key=lambda s: (family_rank(s.family), s.model))


def _by_model(evidence: Evidence) -> dict[tuple[str, str], dict[str, Series]]:
    """(model, data) -> way -> series, for the cells of this question."""
    recipes = evidence.horizons.drop_duplicates("variant").set_index("variant")["recipe"]
    found: dict[tuple[str, str], dict[str, Series]] = {}
    for series in evidence.series:
        if any(AXIS in p.axes for p in series.points):
            found.setdefault((series.last.model, series.last.data), {})[way(recipes[series.variant])] = series
    return found
