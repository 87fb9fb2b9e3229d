"""Comparison tables in the manner of the ViT paper: tasks by models with core-days beneath (Tables 2 and 5), and the
groups of a many-task benchmark (Table 9)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bench.analysis.evidence import FAR, HEADLINE, UPSTREAM, Evidence, Point, Series, family_rank
from bench.analysis.vtab import groups_of, means
from bench.core import formatting as words
from bench.report.layout import Column, Table
from bench.stats.intervals import Estimate, contents

MAX_MODELS = 8  # columns that fit a page; beyond that the largest of each family are shown

Costs = dict[tuple[str, int], dict[str, float]]


def build(evidence: Evidence, costs: Costs) -> tuple[Table, ...]:
    """The tables that the records allow."""
    made = (tasks_by_models(evidence, costs), many_tasks(evidence))
    return tuple(table for table in made if table is not None)


def tasks_by_models(evidence: Evidence, costs: Costs) -> Table | None:
    """Rows: per upstream set its tasks, then core-days and compute; columns: models at their longest horizon."""
    chosen = longest(evidence)
    if not chosen or not evidence.headline:
        return None
    columns = list(dict.fromkeys(_model(series) for series in chosen))
    measures = [m for m in ((HEADLINE, *evidence.measures) if len(evidence.headline) > 1 else evidence.measures)]
    rows: list[dict[str, Any]] = []
    for data in dict.fromkeys(series.last.data for series in chosen):
        at = {_model(series): series.last for series in chosen if series.last.data == data}
        for measure in measures:
            found = {model: e for model, p in at.items() if (e := evidence.estimate(p, measure)) is not None}
            if found:
                rows.append({"data": data, "task": _title(evidence, measure)} | found)
        for key, title in (("core_days", "core-days"), ("train_flops", "training FLOPs")):
            known = {model: number for model, p in at.items() if (number := _cost(costs, p, key)) == number}
            if known:
                rows.append({"data": data, "task": title} | known)
    heads = [Column(key="data", heading="Upstream", numeric=False), Column(key="task", heading="Task", numeric=False)]
    heads += [Column(key=model, heading=model, text=_number) for model in columns]
    dropped = len({_model(s) for s in evidence.on_axis("compute")} - set(columns))
    note = f"The {len(columns)} models with most compute, of {len(columns) + dropped}. " if dropped else ""
    return Table(
        name="comparison", title="Tasks by models, with core-days", rows=tuple(rows), best="row",
        note=note + _note(rows), columns=tuple(heads),
    )  # fmt: skip


def many_tasks(evidence: Evidence) -> Table | None:
    """One row per model: every task of the benchmark in the order of its groups, the groups' means, the plain mean."""
    groups = groups_of(evidence)
    if not groups:
        return None
    tasks = [m for group in groups for m in groups[group]]
    averages = {name: means(evidence, members) for name, members in (*groups.items(), ("all", tasks))}
    rows = []
    for series in longest(evidence, limit=None):
        key = series.last.key
        found: dict[str, Any] = {m: e for m in tasks if (e := evidence.estimate(series.last, m)) is not None}
        if found:
            rows.append({"series": series.label} | found | {name: at.get(key) for name, at in averages.items()})
    columns = [Column(key="series", heading="Model", numeric=False)]
    columns += [Column(key=m, heading=m.rpartition(":")[2]) for m in tasks]
    columns += [Column(key=group, heading=f"{group.capitalize()} ({len(groups[group])})") for group in groups]
    columns += [Column(key="all", heading=f"Mean ({len(tasks)})")]
    return Table(name="many-tasks", title=f"{len(tasks)} tasks in {len(groups)} groups", rows=tuple(rows),
                 columns=tuple(columns), best="column", note=_note(rows)) if rows else None  # fmt: skip


def longest(evidence: Evidence, *, limit: int | None = MAX_MODELS) -> list[Series]:
    """Per model and upstream set its series with most compute; at most `limit` models, those with most compute. A model
    trained by several recipes is as many models: nothing says which of them stands for it."""
    best: dict[tuple[str, str], Series] = {}
    for series in evidence.on_axis("compute"):
        key = _model(series), series.last.data
        if key not in best or series.last.train_flops > best[key].last.train_flops:
            best[key] = series
    most: dict[str, float] = {}
    for (model, _), series in best.items():
        most[model] = max(most.get(model, 0.0), series.last.train_flops)
    kept = set(sorted(most, key=lambda model: (-most[model], model))[:limit])
    ordered = sorted(best.values(), key=lambda s: (family_rank(s.family), most[_model(s)], s.label))
    return [series for series in ordered if _model(series) in kept]


def _model(series: Series) -> str:
    """The model, with what sets its recipe apart, whatever it was pre-trained on."""
    return series.label.replace(f" on {series.last.data}", "", 1)


def _cost(costs: Costs, point: Point, key: str) -> float:
    if key == "train_flops":
        return point.train_flops
    return costs.get(point.key, {}).get(key, float("nan"))


def _number(value: float) -> str:
    return words.flops(value) if value >= 1e6 else words.core_days(value)


def _title(evidence: Evidence, measure: str) -> str:
    if measure in (HEADLINE, FAR):
        return f"mean of {', '.join(evidence.parts(measure))}"
    return "upstream accuracy" if measure == UPSTREAM else measure


def _note(rows: Sequence[dict[str, Any]]) -> str:
    estimates = [value for row in rows for value in row.values() if isinstance(value, Estimate)]
    return f"Accuracies in percent; bold where the interval lies above every other. {contents(estimates)}"


