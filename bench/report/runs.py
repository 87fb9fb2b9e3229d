"""The records (results of training runs) behind the points of figures, as the page shows them when a point is
clicked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bench.analysis.evidence import Evidence
from bench.core.formatting import (
    MISSING,
    core_days,
    count,
    duration,
    flops,
    percent,
    short_count,
    significant,
)
from bench.core.measure import measure_text
from bench.study.cell import to_json
from bench.study.record import Record

MAX_RECORDS = 300  # records whose facts are in the page; the others are only named, and lie beside it

LABELS = (
    "Status",
    "Reason",
    "Model",
    "Parameters",
    "Forward MACs per image",
    "Upstream",
    "Seed",
    "Recipe",
    "Hardware",
    "Time",
    "Peak memory",
    "Commit",
    "Made",
)
HEADS = ("Images seen", "Epochs", "Training FLOPs", "Core-days", "Images/s", "Train loss")


def records(evidence: Evidence, names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return the facts and scores of the first `MAX_RECORDS` of these cells: name of a cell -> {"facts": [(label,
    text)], "columns": [heading], "rows": [[text]]}."""
    shown = names[:MAX_RECORDS]
    means = _means(evidence, set(shown))
    measures = sorted({measure for scores in means.values() for measure in scores})
    columns = [*HEADS, *(f"{measure_text(m)} [%]" for m in measures)]
    by_name = {record.directory: record for record in evidence.records.records}
    return {
        name: {
            "facts": [(label, text) for label, text in zip(LABELS, facts(by_name[name]), strict=True) if text],
            "columns": columns,
            "rows": _rows(by_name[name], means, measures),
        }
        for name in shown
    }


def facts(record: Record) -> list[str]:
    """Return a record's facts as texts, in the order of `LABELS`; "" for each fact that the record does not hold."""
    cell, cost, model, data, execution = record.cell, record.cost, record.model, record.data, record.execution
    environment = record.environment
    recipe = {} if record.source else to_json(cell.recipe)  # recipes of publications are not known in these terms
    settings = [f"{name.replace('_', ' ')} {value}" for name, value in sorted(recipe.items())]
    images = f", {count(data.num_images)} images" if data.num_images else ""
    threads = f"{execution.threads} threads" if execution.threads else None
    hardware = (environment.accelerator, environment.cpu, threads, execution.dtype)
    parts = [
        f"{part} {duration(seconds)}"
        for part in ("train", "evaluate", "save", "wait")
        if (seconds := getattr(cost.seconds, part))
    ]
    if cost.image_wait_seconds:
        parts.append(f"{duration(cost.image_wait_seconds)} of train waiting for images")
    peak, made = cost.peak_memory_bytes, environment.time_end or ""
    return [
        record.status,
        record.reason or "",
        f"{cell.model} ({model.family})",
        _or("", model.params, short_count),
        _or("", model.forward_macs.paper, short_count),
        f"{cell.data} ({data.kind}){images}",
        str(cell.seed),
        ", ".join(settings),
        ", ".join(part for part in hardware if part),
        ", ".join(parts),
        f"{significant(peak / 2**20)} MiB" if peak else "",
        (environment.commit or "")[:12],
        made[:16].replace("T", " "),
    ]


def _rows(record: Record, means: Mapping[Any, Mapping[str, float]], measures: Sequence[str]) -> list[Any]:
    """Return one row of texts per horizon (budget at which the cell was evaluated): a value for each of `HEADS`, then
    the accuracy on each measure. `means`: what `_means` returned."""
    rows = []
    for horizon in record.horizons:
        scores = means.get((record.directory, horizon.images_seen), {})
        rows.append(
            [
                count(horizon.images_seen),
                _or(MISSING, horizon.epochs, lambda v: significant(v, 2)),
                _or(MISSING, horizon.train_flops.paper, flops),
                _or(MISSING, horizon.core_days, core_days),
                _or(MISSING, horizon.images_per_second, significant),
                _or(MISSING, horizon.final_train_loss, lambda v: f"{v:.3f}"),
                *(percent(scores[m]) if m in scores else MISSING for m in measures),
            ]
        )
    return rows


def _means(evidence: Evidence, names: set[str]) -> dict[tuple[str, int], dict[str, float]]:
    """Return the accuracies of cells: (cell, images seen) -> measure -> accuracy in 0..1, as the mean over few-shot
    samples, at the number of shots that the report shows. `names`: the cells."""
    table = evidence.scores
    shown = table["shots"].isna() | (table["shots"] == evidence.shots)
    table = table[shown & table["directory"].isin(names) & table["measure"].isin(evidence.measures)]
    means: dict[tuple[str, int], dict[str, float]] = {}
    grouped = table.groupby(["directory", "images_seen", "measure"], observed=True)["value"].mean()
    for (name, seen, measure), value in grouped.items():
        if value == value:
            means.setdefault((str(name), int(seen)), {})[str(measure)] = float(value)
    return means


def _or(missing: str, value: Any, text: Any) -> str:
    return missing if value is None else text(value)
