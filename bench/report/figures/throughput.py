"""Figure of peak inference speed and largest batch size against input size, in the manner of the ViT paper's Figure
12."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pandas as pd
import seaborn as sns

from bench.analysis.evidence import Evidence, family_rank
from bench.core.by_key import by_key
from bench.core.formatting import plural, significant
from bench.report.figures import _style
from bench.report.figures.figure import Drawing, Figure, NothingToDraw
from bench.study.record import Record, SpeedResult

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TITLE = "Inference speed and largest batch versus input size"
AXIS_REACH = 1.6  # factor by which the axis extends beyond the points; an arrow marks an interval that goes further
NOT_ENOUGH = "out of memory"
Round = tuple[Record, SpeedResult]


def draw(evidence: Evidence) -> Drawing:
    """Draw one line per model. Each point is the speed at the fastest batch size; its bar goes from the slowest to the
    fastest timed window."""
    measured = [(record, record.speed) for record in evidence.records.records if record.speed is not None]
    rows = [_row(group) for group in _grouped(measured)]
    done = [row for row in rows if row["images_per_second"] is not None]
    if not done:
        raise NothingToDraw("no speed was measured")
    names = sorted({row["model"] for row in done}, key=lambda name: _order(name, done))
    unit = "core" if all(row["device_kind"] == "cpu" for row in done) else "device"
    table = pd.DataFrame(done)
    with _style.context():
        panels = 2 if unit == "device" else 1  # the largest batch of a CPU is what its memory holds: it limits nobody
        lines = panels // _style.columns(panels)
        figure = _style.figure(columns=panels // lines, height=4.2 * lines)
        left, *others = figure.subplots(lines, panels // lines, squeeze=False).flat
        _panel(left, table.assign(low=table["min"], high=table["max"], measured=True), names, "images_per_second")
        left.set_ylabel(f"Peak inference speed [images/s per {unit}]")
        for right in others:
            _panel(right, table.assign(measured=table["largest_batch_is_found"]), names, "largest_batch")
            right.set_ylabel(f"Largest batch [images per {unit}]")
        family_of = dict(zip(table["model"], table["family"], strict=True))
        _style.legend(figure, _style.family_handles(list(dict.fromkeys(family_of[name] for name in names))))
    return Drawing(
        figure=figure, data=pd.DataFrame(rows), caption=_caption(done, rows, unit), alt=_alt(names, done, unit)
    )


def _grouped(measured: Sequence[Round]) -> list[list[Round]]:
    """Group speed measurements, (record, speed) each, by model, input size, device, threads and precision. The members
    of a group are repetitions, with different seeds."""
    groups = by_key(
        ((r.cell.model, r.cell.image_size, speed.conditions.device, r.execution.threads, r.execution.dtype), (r, speed))
        for r, speed in measured
    )
    return [groups[key] for key in sorted(groups, key=str)]


def _row(rounds: Sequence[Round]) -> dict[str, Any]:
    """Return the figure's row of one point: medians over its repetitions; smallest and largest speed over all timed
    windows. A missing number is None."""
    first = rounds[0][0]
    speeds = [speed for _, speed in rounds]
    kind = first.execution.device
    share = (first.execution.threads or 1) if kind == "cpu" else 1  # speeds are per core

    def middle(path: str, scale: float = 1.0) -> float | None:
        known = [value for speed in speeds if (value := _get(speed, path)) is not None]
        return statistics.median(known) / scale if known else None

    windows = [rate / share for speed in speeds for rate in _get(speed, "inference.windows") or ()]
    largest = middle("largest_batch.found_inference")
    return {
        "model": first.cell.model,
        "family": first.model.family,
        "params": first.model.params,
        "image_size": first.cell.image_size,
        "status": first.status if any(s.inference for s in speeds) else NOT_ENOUGH,
        "images_per_second": middle("inference.images_per_second.median", scale=share),
        "min": min(windows, default=None),
        "max": max(windows, default=None),
        "windows": len(windows),
        "rounds": len(rounds),
        "batch": middle("inference.batch"),
        "utilisation": middle("inference.utilisation"),
        "compiled_images_per_second": middle("compiled.images_per_second.median", scale=share),
        "compile_seconds": middle("compiled.first_call_seconds"),
        "training_images_per_second": middle("training.images_per_second.median", scale=share),
        "training_batch": middle("training.batch"),
        "latency_p50_ms": middle("latency.p50_ms"),
        "latency_p90_ms": middle("latency.p90_ms"),
        "latency_p99_ms": middle("latency.p99_ms"),
        "largest_batch": largest if largest is not None else middle("largest_batch.inference"),
        "largest_batch_is_found": largest is not None,
        "largest_training_batch_predicted": middle("largest_batch.training"),
        "budget_bytes": middle("largest_batch.budget_bytes"),
        "process_peak_bytes": middle("memory.process_peak_bytes"),
        "inference_peak_bytes": middle("memory.inference_peak_bytes"),
        "training_peak_bytes": middle("memory.training_peak_bytes"),
        "reference_images_per_second": middle("reference.throughput.images_per_second.median"),
        "device_kind": kind,
        "device": speeds[0].conditions.device,
        "threads": first.execution.threads,
        "dtype": first.execution.dtype,
        "torch": first.environment.torch,
        "commit": first.environment.commit,
        "peak_source": first.cost.peak_source,
    }


def _get(value: Any, path: str) -> Any:
    """Return the attribute of `value` at a dotted path, such as "inference.batch"; None where a part of the path is
    None."""
    for name in path.split("."):
        value = None if value is None else getattr(value, name)
    return value


def _order(name: str, rows: Sequence[dict[str, Any]]) -> tuple[Any, ...]:
    row = next(row for row in rows if row["model"] == name)
    return family_rank(row["family"] or ""), row["params"] or 0, name


def _panel(axes: Axes, table: pd.DataFrame, names: Sequence[str], value: str) -> None:
    """Draw the column `value` of the table against input size: one line per model, with the model's name at its end.
    Hollow points are predicted, not measured."""
    table = table[table[value].notna() & (table[value] != 0)].sort_values("image_size")
    families = list(dict.fromkeys(table["family"]))
    colours: dict[str, Any] = {}
    for family in families:
        mine = [name for name in names if name in set(table.loc[table["family"] == family, "model"])]
        colours |= dict(zip(mine, _style.shades(_style.look(family, families)[0], len(mine)), strict=True))
    sns.lineplot(
        table,
        x="image_size",
        y=value,
        hue="model",
        palette=colours,
        estimator=None,
        linewidth=1.3,
        legend=False,
        ax=axes,
    )
    for (family, model, measured), points in table.groupby(["family", "model", "measured"], sort=False):
        colour, marker = colours[str(model)], _style.look(str(family), families)[1]
        face = colour if measured else "white"
        axes.scatter(points["image_size"], points[value], s=40, marker=marker, color=face, edgecolors=colour, zorder=3)
        if "low" in points:
            axes.vlines(points["image_size"], points["low"], points["high"], colors=[colour], linewidth=1.1)
    axes.set_ylim(table[value].min() / AXIS_REACH, table[value].max() * AXIS_REACH)
    _style.plain_log_y(axes)
    _style.plain_log_x(axes, list(table["image_size"]), room=0.3)
    if "low" in table:
        edges = [_style.look(family, families)[0] for family in table["family"]]
        _style.arrows_where_cut(axes, table["image_size"], table["low"], table["high"], edges)
    axes.set_xlabel("Input size [px]")
    last = table.groupby("model", sort=False).tail(1)
    named = [(row["image_size"], row[value], row["model"], colours[row["model"]]) for _, row in last.iterrows()]
    curves = [list(zip(mine["image_size"], mine[value], strict=True)) for _, mine in table.groupby("model")]
    _style.name_points(axes, named, curves=curves)


def _caption(done: Sequence[dict[str, Any]], rows: Sequence[dict[str, Any]], unit: str) -> str:
    windows, rounds = sorted({row["windows"] for row in done}), max(row["rounds"] for row in done)
    budgets = [row["budget_bytes"] or 0 for row in done if row["largest_batch"] and not row["largest_batch_is_found"]]
    reference = [row["reference_images_per_second"] for row in done if row["reference_images_per_second"]]
    in_figure = unit == "device"
    lacking = [f"{row['model']} at {row['image_size']} px" for row in rows if row["images_per_second"] is None]
    said = (
        "Each point is the fastest of all batch sizes tried: the median of "
        f"{windows[0] if len(windows) == 1 else f'{windows[0]}–{windows[-1]}'} windows"
        + (f" over {rounds} rounds" if rounds > 1 else "")
        + ", bars from the slowest to the fastest window; the models' windows take turns with a reference model's. "
        "No data is loaded.",
        in_figure
        and budgets
        and f"Largest batch, hollow: predicted from tensor shapes for {significant(max(budgets) / 2**30)} GiB (float32 "
        "inference).",
        in_figure and any(row["largest_batch_is_found"] for row in done) and "Largest batch, filled: found by trying.",
        _machines(done, unit),
        len(reference) > 1
        and f"The reference model's speed varied by {100 * (max(reference) / min(reference) - 1):.0f} % between runs.",
        lacking and f"Out of memory at batch 1: {', '.join(lacking)}.",
    )
    return " ".join(str(sentence) for sentence in said if sentence)


def _machines(rows: Sequence[dict[str, Any]], unit: str) -> str:
    """Return sentences for the caption on the hardware and versions that were used, and on mixed commits."""
    kinds = sorted(
        {f"{r['device']}, {plural(r['threads'] or 1, 'thread')}, {r['dtype']}, torch {r['torch']}" for r in rows}
    )
    commits = {row["commit"] for row in rows}
    text = f"Per {unit}; {'; '.join(kinds)}."
    return text + (" The points mix commits of this project." if len(commits) > 1 else "")


def _alt(names: Sequence[str], rows: Sequence[dict[str, Any]], unit: str) -> str:
    sizes = sorted({row["image_size"] for row in rows})
    span = f"{len(names)} models at {sizes[0]} to {sizes[-1]} px"
    shown = "images per second" if unit == "core" else "left images per second, right the largest batch"
    return f"{TITLE}: {span}; {shown}."


FIGURE = Figure(title=TITLE, draw=draw)
