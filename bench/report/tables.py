"""Tables of a report."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Any

from bench.analysis import branching, peers, rates
from bench.analysis.evidence import FAR, HEADLINE, UPSTREAM, Evidence, Point
from bench.core import formatting as words
from bench.report import comparison
from bench.report.layout import ESTIMATE_ENDS, Column, Table, split
from bench.stats.intervals import Estimate, contents

FROM_COMPUTE = "MACs/image are worked back from the printed, rounded exaFLOPs."


def build(evidence: Evidence) -> tuple[Table, ...]:
    """Every table, in the order of the report."""
    compared = comparison.build(evidence, _costs(evidence))
    raced = peers.table(evidence.records.records, level=evidence.level)
    special = tuple(table for table in (raced, branching.table(evidence), rates.table(evidence)) if table is not None)
    return (*special, models(evidence), *compared, baselines(evidence), horizons(evidence), coverage(evidence))


def models(evidence: Evidence) -> Table:
    """One row per model of the compute axis, at its longest horizon."""
    costs = _costs(evidence)
    rows = []
    for series in evidence.on_axis("compute"):
        p = series.last
        rows.append(_point_row(p, series.label) | costs.get(p.key, {}) | _scores(evidence, p))
    return Table(
        name="models", title="Models at their longest horizon", rows=tuple(rows),
        columns=(*NAMES, *SIZE, *BUDGET, *SPEED, *_score_columns(evidence)), best="column",
        note=" ".join(filter(None, (FROM_COMPUTE if evidence.published else "", _note(evidence, rows)))),
    )  # fmt: skip


def horizons(evidence: Evidence) -> Table:
    """Every (model, data size, horizon), means over seeds."""
    costs = _costs(evidence)
    rows = [
        _point_row(p, s.label) | costs.get(p.key, {}) | _scores(evidence, p) for s in evidence.series for p in s.points
    ]
    columns = (*NAMES, *BUDGET, Column(key="final_train_loss", heading="Train loss", text=lambda v: f"{v:.3f}"),
               *_score_columns(evidence))  # fmt: skip
    return Table(name="horizons", title="Every horizon", columns=columns, rows=tuple(rows), note=_note(evidence, rows))


def baselines(evidence: Evidence) -> Table:
    """Raw pixels, and the untrained network of every model."""
    rows = []
    if evidence.pixels:
        rows.append({"series": "raw pixels", "family": "–"} | _scores(evidence, evidence.pixels))
    seen: set[str] = set()
    for series in evidence.series:
        if series.untrained and series.label not in seen and _scores(evidence, series.untrained):
            seen.add(series.label)
            rows.append({"series": f"{series.label}, untrained", "family": series.family}
                        | _scores(evidence, series.untrained))  # fmt: skip
    columns = (NAMES[0], NAMES[1], *(c for c in _score_columns(evidence) if c.key != UPSTREAM))
    return Table(name="baselines", title="Baselines", columns=columns, rows=tuple(rows), note=_note(evidence, rows))


def coverage(evidence: Evidence) -> Table:
    """Every cell: done, diverged, failed, damaged, not finished or never started."""
    rows = [
        {"cell": record.directory, "status": record.status, "reason": record.reason or "",
         "horizons": len(record.horizons), "seconds": record.cost.seconds.total}
        for record in evidence.records.records
    ]  # fmt: skip
    rows += [{"cell": d.directory, "status": "damaged record", "reason": d.reason} for d in evidence.records.damaged]
    rows += [{"cell": name, "status": "not finished", "reason": ""} for name in evidence.records.unfinished]
    rows += [{"cell": name, "status": "never started", "reason": ""} for name in evidence.records.never_started]
    columns = (
        Column(key="cell", heading="Cell", numeric=False), Column(key="status", heading="Status", numeric=False),
        Column(key="horizons", heading="Horizons"), Column(key="seconds", heading="Time", text=words.duration),
        Column(key="reason", heading="Reason", numeric=False),
    )  # fmt: skip
    return Table(name="coverage", title="Coverage", columns=columns, rows=tuple(rows))


def scores_csv(evidence: Evidence) -> str:
    """Every measure, whatever its metric, at every number of shots, long: one row per (point, measure, shots)."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    copies = _without_copies(evidence)
    writer.writerow(["series", "family", "data", "num_images", "images_seen", "train_flops", "measure", "shots",
                     *("accuracy" + end if not end else end[1:] for end in ESTIMATE_ENDS),
                     *(["num_duplicates", "accuracy_without_duplicates"] if copies else [])])  # fmt: skip
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
                    writer.writerow([p.series, p.family, p.data, p.num_images, p.images_seen, p.train_flops, measure,
                                     shots or "", *split(estimates[key]),
                                     *copies.get((*key, measure, shots), ("", "") if copies else ())])  # fmt: skip
    return out.getvalue()


def _without_copies(evidence: Evidence) -> dict[tuple[str, int, str, int | None], tuple[int, float | str]]:
    """Test images that are copies of training images, and the accuracy without them, per point, measure and shots,
    where copies were looked for. Means over seeds and draws."""
    looked = evidence.scores[evidence.scores["num_duplicates"].notna()]
    variant_of = dict(zip(evidence.horizons["directory"], evidence.horizons["variant"], strict=True))
    looked = looked.assign(variant=looked["directory"].map(variant_of), shots=looked["shots"].fillna(-1))
    grouped = looked.groupby(["variant", "images_seen", "measure", "shots"], observed=True)
    found = grouped.agg({"num_duplicates": "max", "value_without_duplicates": "mean"})
    return {
        (variant, int(seen), measure, None if shots < 0 else int(shots)): (int(number), "" if value != value else value)
        for (variant, seen, measure, shots), (number, value) in zip(found.index, found.to_numpy().tolist(), strict=True)
    }


NAMES = (
    Column(key="series", heading="Model", numeric=False),
    Column(key="family", heading="Family", numeric=False),
)
SIZE = (
    Column(key="params", heading="Parameters", text=words.short_count),
    Column(key="forward_macs", heading="MACs/image", text=words.short_count),
)
BUDGET = (
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


def _point_row(p: Point, label: str) -> dict[str, Any]:
    return {
        "series": label, "family": p.family, "data": p.data, "params": p.params, "forward_macs": p.forward_macs,
        "num_images": p.num_images, "images_seen": p.images_seen, "epochs": p.epochs, "train_flops": p.train_flops,
    }  # fmt: skip


def _costs(evidence: Evidence) -> dict[tuple[str, int], dict[str, float]]:
    """Means over seeds of what a horizon cost."""
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
    averages = [Column(key=key, heading=f"{key.capitalize()} mean [%]")
                for key, parts in ((HEADLINE, evidence.headline), (FAR, evidence.far)) if len(parts) > 1]  # fmt: skip
    return averages + [Column(key=m, heading=f"{m} [%]") for m in evidence.measures]


def _note(evidence: Evidence, rows: Sequence[Mapping[str, Any]]) -> str:
    estimates = [v for row in rows for v in row.values() if isinstance(v, Estimate)]
    if not estimates:
        return ""
    shots = f"{evidence.shots}-shot accuracies; " if evidence.shots else ""
    n = words.join(sorted({" × ".join(_runs(e)) for e in estimates if _runs(e)}), "or")
    by_measure = {m: [e.num_test for row in rows if isinstance(e := row.get(m), Estimate)] for m in evidence.measures}
    tests = [f"{measure} {max(numbers):,}" for measure, numbers in by_measure.items() if numbers]
    sizes = [(row["data"], row["num_images"]) for row in rows if "num_images" in row]
    return f"{shots}n: {n}; test images: {', '.join(tests)}. {contents(estimates, trained_on=sizes)}"


def _runs(e: Estimate) -> list[str]:
    return [words.plural(n, noun) for n, noun in ((e.num_seeds, "seed"), (e.num_draws, "draw")) if n]
