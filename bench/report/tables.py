"""The tables of a report."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from bench.analysis.evidence import FAR, HEADLINE, UPSTREAM, Evidence, Point, Series, family_rank
from bench.analysis.question import Question
from bench.analysis.table import ESTIMATE_ENDS, Column, Table, csv_text, split
from bench.core import formatting as words
from bench.core.cell_state import CellState
from bench.stats.intervals import Estimate, contents
from bench.store.planned import PlannedAgainstActual, compare

COMPARED = ("params", "train_flops", "core_days")  # columns, besides scores, that stay in the page's table of models
MORE_COLUMNS_NOTE = "Single tasks, images, epochs, MACs and speed are in tables/models.csv."
FROM_COMPUTE_NOTE = " MACs/image are worked back from the printed, rounded exaFLOPs."
HALF_NOTE = "± is half an interval, not a standard error."
MAX_MODELS = 8  # columns that fit a page; beyond that the largest of each family are shown

Costs = dict[tuple[str, int], dict[str, float]]


def build(evidence: Evidence, questions: Iterable[Question] = ()) -> tuple[Table, ...]:
    """Return the tables of a report in their order: those of the questions that were asked, then those that every study
    has."""
    made = (
        *of_questions(evidence, questions),
        models(evidence),
        tasks_by_models(evidence),
        many_tasks(evidence),
        baselines(evidence),
        horizons(evidence),
        coverage(evidence),
        planned(evidence),
    )
    return tuple(table for table in made if table is not None)


def of_questions(evidence: Evidence, questions: Iterable[Question]) -> tuple[Table, ...]:
    """Return the tables that these questions make of the evidence."""
    return tuple(table for question in questions for table in question.tables(evidence))


def planned(evidence: Evidence) -> Table | None:
    """Return the table of planned and actual time, as means per cell: one row for each model, upstream set and longest
    budget. None if the study keeps no plan."""
    plans, kinds = evidence.records.plans, dict[tuple[str, str, int], dict[str, tuple[float | None, float | None]]]()
    for record in evidence.records.records:
        if record.status == "complete":
            kind = record.cell.model, record.cell.data_name, record.cell.horizons[-1]
            spent = record.cost.seconds.total, record.cost.processor_seconds
            kinds.setdefault(kind, {})[record.directory] = spent
    rows = [
        {"model": model, "data": data, "seen": seen} | _per_cell(comparison)
        for (model, data, seen), spent in kinds.items()
        if (comparison := compare(plans, spent)) is not None
    ]
    whole = compare(plans, {name: took for spent in kinds.values() for name, took in spent.items()})
    if whole is None:
        return None
    runs = [
        f"{words.plural(run.cells, 'run')} {words.planned_and_took(run.planned, run.took)}"
        + (f" by {words.plural(run.workers, 'worker')}" if run.executor == "local" else f" through {run.executor}")
        for run in plans.runs
    ]
    note = (
        f"Per run, on one worker. In all {words.planned_and_took(whole.planned, whole.took, whole.processor)}. Plans "
        "assume an idle machine; the time of a run is wall-clock: on a loaded machine it is more than what it used of "
        "a processor. "
    )
    return Table(
        name="planned",
        title="Planned and actual time",
        rows=tuple(rows),
        columns=(
            Column(key="model", heading="Model", numeric=False),
            Column(key="data", heading="Upstream", numeric=False),
            Column(key="seen", heading="Images seen", text=words.count),
            Column(key="cells", heading="Cells", text=words.count),
            Column(key="planned", heading="Planned", text=words.duration),
            Column(key="took", heading="Took", text=words.duration),
            Column(key="more", heading="More than planned [%]", text=lambda v: f"{100 * v:+.0f}"),
            Column(key="processor", heading="Of a processor", text=words.duration),
        ),
        note=note + (f"Wall-clock time of whole runs, with workers' starts: {'; '.join(runs)}." if runs else ""),
    )


def _per_cell(comparison: PlannedAgainstActual) -> dict[str, Any]:
    each = {"planned": comparison.planned, "took": comparison.took, "processor": comparison.processor}
    means = {name: None if seconds is None else seconds / comparison.cells for name, seconds in each.items()}
    return {
        "cells": comparison.cells,
        "more": comparison.took / comparison.planned - 1 if comparison.planned else None,
    } | means


def models(evidence: Evidence) -> Table:
    """Return the table with one row per model on the compute axis, at its longest budget."""
    rows = [_point_row(evidence, s.last, s.label) for s in evidence.on_axis("compute", every=True)]
    tasks = tuple(m for m in evidence.measures if m != UPSTREAM) if len(evidence.headline) > 1 else ()
    return Table(
        name="models",
        title="Models at their longest budget",
        rows=tuple(rows),
        columns=(*NAMES, *SIZE, *BUDGET, *SPEED, *_score_columns(evidence)),
        csv_only=tuple(c.key for c in (*SIZE, *BUDGET, *SPEED) if c.key not in COMPARED) + tasks,
        best="column",
        note=f"{_note(evidence, rows)} {MORE_COLUMNS_NOTE}{FROM_COMPUTE_NOTE if evidence.published else ''}"
        if rows
        else "",
    )


def horizons(evidence: Evidence) -> Table:
    """Return the table with one row per model, number of upstream images and budget, as means over seeds."""
    rows = [_point_row(evidence, p, s.label) for s in evidence.series for p in s.points]
    columns = (
        *NAMES,
        *BUDGET,
        Column(key="final_train_loss", heading="Train loss", text=lambda v: f"{v:.3f}"),
        *_score_columns(evidence),
    )
    return Table(name="horizons", title="Every budget", columns=columns, rows=tuple(rows), note=_note(evidence, rows))


def tasks_by_models(evidence: Evidence) -> Table | None:
    """Return the table that compares models: a column per model, at its longest budget, and for each upstream set a row
    per task, then rows for core-days and compute. None where there are no scores."""
    chosen, costs = longest(evidence), _costs(evidence)
    if not chosen or not evidence.headline:
        return None
    columns = list(dict.fromkeys(_model(series) for series in chosen))
    measures = [m for m in ((HEADLINE, *evidence.measures) if len(evidence.headline) > 1 else evidence.measures)]
    rows: list[dict[str, Any]] = []
    for data in dict.fromkeys(series.last.data for series in chosen):
        at = {_model(series): series.last for series in chosen if series.last.data == data}
        for measure in measures:
            estimates = {model: e for model, p in at.items() if (e := evidence.estimate(p, measure)) is not None}
            if estimates:
                rows.append({"data": data, "task": _title(evidence, measure)} | estimates)
        for key, title in (("core_days", "core-days"), ("train_flops", "training FLOPs")):
            known = {model: number for model, p in at.items() if (number := _cost(costs, p, key)) == number}
            if known:
                rows.append({"data": data, "task": title} | known)
    heads = [Column(key="data", heading="Upstream", numeric=False), Column(key="task", heading="Task", numeric=False)]
    heads += [Column(key=model, heading=model, text=_number) for model in columns]
    dropped = len({_model(s) for s in evidence.on_axis("compute", every=True)} - set(columns))
    note = f"The {len(columns)} models with most compute, of {len(columns) + dropped}. " if dropped else ""
    return Table(
        name="comparison",
        title="Tasks by models, with core-days",
        rows=tuple(rows),
        best="row",
        note=note + _compared(rows),
        columns=tuple(heads),
    )


def many_tasks(evidence: Evidence) -> Table | None:
    """Return the table for a benchmark of many tasks, such as VTAB, with one row per model: its score on every task, in
    the order of the benchmark's groups of tasks, the mean of each group, and the plain mean. None if no task belongs to
    such a benchmark."""
    if evidence.scores["group"].isna().all():
        return None
    from bench.analysis.vtab import groups_of, means  # few studies have groups of tasks

    groups = groups_of(evidence)
    if not groups:
        return None
    tasks = [m for group in groups for m in groups[group]]
    averages = {name: means(evidence, members) for name, members in (*groups.items(), ("all", tasks))}
    rows: list[dict[str, Any]] = [
        {"series": s.label} | scores | {name: at.get(s.last.key) for name, at in averages.items()}
        for s in longest(evidence, limit=None)
        if (scores := {m: e for m in tasks if (e := evidence.estimate(s.last, m)) is not None})
    ]
    data = dict(zip(evidence.scores["measure"], evidence.scores["data"], strict=True))
    columns = [
        Column(key="series", heading="Model", numeric=False),
        *(Column(key=m, heading=data[m]) for m in tasks),
        *(Column(key=group, heading=f"{group.capitalize()} ({len(groups[group])})") for group in groups),
        Column(key="all", heading=f"Mean ({len(tasks)})"),
    ]
    return (
        Table(
            name="many-tasks",
            title=f"{len(tasks)} tasks in {len(groups)} groups",
            rows=tuple(rows),
            columns=tuple(columns),
            best="column",
            note=_compared(rows),
        )
        if rows
        else None
    )


def longest(evidence: Evidence, *, limit: int | None = MAX_MODELS) -> list[Series]:
    """Return, for each model and upstream set, its series (a model with one recipe) of most compute. Of more than
    `limit` models, only those with most compute are returned; None: all. A model that was trained by several recipes
    counts as several models, since none of the recipes is its usual one."""
    best: dict[tuple[str, str], Series] = {}
    for series in evidence.on_axis("compute", every=True):
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
    """Return a series' name without its upstream set: the model, and what distinguishes its recipe."""
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
    return "test accuracy" if measure == UPSTREAM else measure


def _compared(rows: Sequence[dict[str, Any]]) -> str:
    estimates = [value for row in rows for value in row.values() if isinstance(value, Estimate)]
    return f"Accuracies in percent; bold where the interval lies above every other. {HALF_NOTE} {contents(estimates)}"


def baselines(evidence: Evidence) -> Table:
    """Return the table of baselines: the probe on raw pixels, and the untrained network of every model."""
    rows = []
    if evidence.pixels:
        rows.append({"series": "pixel baseline", "family": "–"} | _scores(evidence, evidence.pixels))
    seen: set[str] = set()
    for series in evidence.series:
        if series.untrained and series.label not in seen and _scores(evidence, series.untrained):
            seen.add(series.label)
            rows.append(
                {"series": f"{series.label}, untrained", "family": series.family} | _scores(evidence, series.untrained)
            )
    columns = (NAMES[0], NAMES[1], *(c for c in _score_columns(evidence) if c.key != UPSTREAM))
    return Table(name="baselines", title="Baselines", columns=columns, rows=tuple(rows), note=_note(evidence, rows))


def coverage(evidence: Evidence) -> Table:
    """Return the table with one row per cell, which says whether the cell is complete, diverged, damaged, not finished
    or never started, and why."""
    rows = [
        {
            "cell": record.directory,
            "status": record.status,
            "reason": record.reason or "",
            "horizons": len(record.horizons),
            "seconds": record.cost.seconds.total,
        }
        for record in evidence.records.records
    ]
    refused = evidence.records.wanted.refused if evidence.records.wanted else {}
    others = [
        *((d.directory, "damaged record", d.reason) for d in evidence.records.damaged),
        *((name, "not finished", "") for name in evidence.records.unfinished),
        *((name, CellState.NEVER_STARTED, refused.get(name, "")) for name in evidence.records.never_started),
    ]
    rows += [dict(zip(("cell", "status", "reason"), other, strict=True)) for other in others]
    columns = (
        Column(key="cell", heading="Cell", numeric=False),
        Column(key="status", heading="Status", numeric=False),
        Column(key="horizons", heading="Horizons"),
        Column(key="seconds", heading="Time", text=words.duration),
        Column(key="reason", heading="Reason", numeric=False),
    )
    return Table(name="coverage", title="Coverage", columns=columns, rows=tuple(rows))


def scores_csv(evidence: Evidence) -> str:
    """Return a CSV of all scores, on every measure, whatever its metric, and at every number of shots: one row for each
    point (a model at a budget), measure and number of shots."""
    copies = _without_copies(evidence)
    heads = [
        "series",
        "family",
        "data",
        "num_images",
        "images_seen",
        "train_flops",
        "measure",
        "shots",
        *("accuracy" + end if not end else end[1:] for end in ESTIMATE_ENDS),
        *(["num_duplicates", "accuracy_without_duplicates"] if copies else []),
    ]
    rows = []
    all_shots: list[int | None] = [*sorted({int(s) for s in evidence.scores["shots"].dropna().unique()})] or [None]
    order = {p.key: p for s in evidence.series for p in ((s.untrained,) if s.untrained else ()) + s.points}
    if evidence.pixels:
        order[evidence.pixels.key] = evidence.pixels
    for measure in evidence.all_measures:
        drawn = evidence.scores.loc[evidence.scores["measure"] == measure, "shots"].notna().any()
        for shots in all_shots if drawn else [None]:
            estimates = evidence.estimates(measure, shots=shots)
            for key, p in order.items():
                if key in estimates:
                    rows.append(
                        [
                            p.series,
                            p.family,
                            p.data,
                            p.num_images,
                            p.images_seen,
                            p.train_flops,
                            measure,
                            shots or "",
                            *split(estimates[key]),
                            *copies.get((*key, measure, shots), ("", "") if copies else ()),
                        ]
                    )
    return csv_text(heads, rows)


def _without_copies(evidence: Evidence) -> dict[tuple[str, int, str, int | None], tuple[int, float | str]]:
    """Return (variant, images seen, measure, shots) -> (number of test images that are copies of training images,
    accuracy without these images), for scores whose test images were searched for copies. Accuracies are means over
    seeds and few-shot samples; "" where there is none."""
    looked = evidence.scores[evidence.scores["num_duplicates"].notna()]
    variant_of = dict(zip(evidence.horizons["directory"], evidence.horizons["variant"], strict=True))
    looked = looked.assign(variant=looked["directory"].map(variant_of), shots=looked["shots"].fillna(-1))
    grouped = looked.groupby(["variant", "images_seen", "measure", "shots"], observed=True)
    scored = grouped.agg({"num_duplicates": "max", "value_without_duplicates": "mean"})
    return {
        (variant, int(seen), measure, None if shots < 0 else int(shots)): (int(number), "" if value != value else value)
        for (variant, seen, measure, shots), (number, value) in zip(
            scored.index, scored.to_numpy().tolist(), strict=True
        )
    }


NAMES = (
    Column(key="series", heading="Model", numeric=False),
    Column(key="family", heading="Family", numeric=False),
)
SIZE = (
    Column(key="params", heading="Parameters", text=words.short_count),
    Column(key="forward_macs", heading="MACs/image", text=words.short_count),
)
BUDGET = (  # columns of the tables "models" and "horizons"
    Column(key="data", heading="Upstream", numeric=False),
    Column(key="num_images", heading="Images", text=words.count),
    Column(key="images_seen", heading="Images seen", text=words.count),
    Column(key="epochs", heading="Epochs", text=lambda v: words.significant(v, 2)),
    Column(key="train_flops", heading="Training FLOPs", text=words.flops),
)
SPEED = (
    Column(key="images_per_second", heading="Images/s", text=words.significant),
    Column(key="utilisation", heading="Utilisation", text=lambda v: f"{100 * v:.0f} %"),
    Column(key="train_seconds", heading="Training time", text=words.duration),
    Column(key="core_days", heading="Core-days", text=words.core_days),
)


def _point_row(evidence: Evidence, p: Point, label: str) -> dict[str, Any]:
    """Return a row of a table: the facts, costs and scores of a point. `label`: the model's name in the row."""
    about = {
        "series": label,
        "family": p.family,
        "data": p.data,
        "params": p.params,
        "forward_macs": p.forward_macs,
        "num_images": p.num_images,
        "images_seen": p.images_seen,
        "epochs": p.epochs,
        "train_flops": p.train_flops,
    }
    return about | _costs(evidence).get(p.key, {}) | _scores(evidence, p)


@lru_cache(maxsize=4)
def _costs(evidence: Evidence) -> Costs:
    """Return the costs of every horizon as means over seeds: (variant, images seen) -> name of a cost -> value. A
    variant is everything that defines a trained model except its seed."""
    names = ["images_per_second", "utilisation", "train_seconds", "core_days", "final_train_loss"]
    done = evidence.horizons[evidence.horizons["status"] == "complete"]
    if done.empty:
        return {}
    means = done.groupby(["variant", "images_seen"])[names].mean()
    rows = zip(means.index, means.to_numpy().tolist(), strict=True)
    return {(str(variant), int(seen)): dict(zip(names, row, strict=True)) for (variant, seen), row in rows}


def _scores(evidence: Evidence, point: Point) -> dict[str, Estimate]:
    measures = (HEADLINE, FAR, *evidence.measures)
    return {m: e for m in measures if (e := evidence.estimate(point, m)) is not None}


def _score_columns(evidence: Evidence) -> list[Column]:
    averages = [
        Column(key=key, heading=f"{key.capitalize()} mean [%]")
        for key, parts in ((HEADLINE, evidence.headline), (FAR, evidence.far))
        if len(parts) > 1
    ]
    return averages + [
        Column(key=m, heading=f"{'Test accuracy' if m == UPSTREAM else m} [%]") for m in evidence.measures
    ]


def _note(evidence: Evidence, rows: Sequence[Mapping[str, Any]]) -> str:
    estimates = [v for row in rows for v in row.values() if isinstance(v, Estimate)]
    if not estimates:
        return ""
    shots = f"{evidence.shots}-shot accuracies; " if evidence.shots else ""
    n = words.join(sorted({" × ".join(_runs(e)) for e in estimates if _runs(e)}), "or")
    by_measure = {m: [e.num_test for row in rows if isinstance(e := row.get(m), Estimate)] for m in evidence.measures}
    tests = [f"{measure} {max(numbers):,}" for measure, numbers in by_measure.items() if numbers]
    sizes = [(row["data"], row["num_images"]) for row in rows if "num_images" in row]
    return f"{shots}n: {n}; test images: {', '.join(tests)}. {HALF_NOTE} {contents(estimates, trained_on=sizes)}"


def _runs(e: Estimate) -> list[str]:
    return [words.plural(n, noun) for n, noun in ((e.num_seeds, "seed"), (e.num_draws, "few-shot sample")) if n]
