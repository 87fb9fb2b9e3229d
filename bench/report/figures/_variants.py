"""Draws variants of one model beside each other: accuracy with its interval, in a panel per measure (a task on a data
set, or an average)."""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from bench.analysis.evidence import HEADLINE, UPSTREAM, Evidence, Point
from bench.core.formatting import compact
from bench.report.figures import _panels, _style
from bench.report.figures.figure import Drawing, NothingToDraw
from bench.stats.intervals import Estimate, contents

PLACE_LINE_LETTERS = 13  # letters of a place's name that stand on one line
LETTERS_BELOW = 100  # letters that fit beside each other below a row of panels


@dataclass(frozen=True, kw_only=True)
class Curve:
    """Points with one label, as (x, point); a line joins them if x is a number."""

    label: str
    points: tuple[tuple[float, Point], ...]


def judged_by(evidence: Evidence, points: Iterable[Point]) -> tuple[str, ...]:
    """Return the names of the two measures to draw. The first is the mean of the study's main tasks or, if a point
    lacks it, the first task that all points were evaluated on; the second is accuracy on the pre-training set."""
    compared = list(points)
    tasks = (m for m in (HEADLINE, *evidence.measures) if m != UPSTREAM)
    return next((m for m in tasks if all(evidence.estimate(p, m) for p in compared)), HEADLINE), UPSTREAM


def draw(
    evidence: Evidence,
    curves: Sequence[Curve],
    *,
    measures: Sequence[str],
    x_label: str,
    x_name: str,
    ticks: Sequence[str] = (),
    linear: bool = False,
    caption: str,
    alt: str,
) -> Drawing:
    """Draw accuracy against x, one panel for each measure.

    Args:
        curves: the points to draw.
        measures: names of the measures.
        x_label: label of the x axis.
        x_name: name of the column of x in the CSV.
        ticks: names of the categories 0, 1, …, if x is a category: no line then joins points. Without them the x axis
            is logarithmic or, if `linear`, linear from zero.
        caption: what is shown; sentences on n and intervals follow it.
        alt: one sentence for those who cannot see the figure.

    Raises:
        NothingToDraw: no point was scored on any of these measures.
    """
    shown = [m for m in measures if any(evidence.estimate(p, m) for c in curves for _, p in c.points)]
    if not shown or not curves:
        raise NothingToDraw("no variants were scored")
    known = [
        (measure, curve, x, p, e)
        for measure in shown
        for curve in curves
        for x, p in curve.points
        if (e := evidence.estimate(p, measure))
    ]
    explained = [(p, measure, e) for measure, _, _, p, e in known]
    rows = [_row(*one) for one in known]
    table = pd.DataFrame(rows)
    axis = _panels.XAxis(
        label=x_label, column=x_name, ticks=tuple(map(_wrapped, ticks)), trend=not ticks, linear=linear
    )
    table["at"] = _panels.apart(table, "curve") if ticks else table["x"]
    every = _style.VARIANTS if len(curves) > 1 else ((_style.INK, "o"),)
    looks = {c.label: look for c, look in zip(curves, itertools.cycle(every), strict=False)}
    with _style.context():
        letters = sum(max(map(len, tick.split("\n"))) for tick in axis.ticks)
        columns = min(_style.columns(len(shown)), max(1, LETTERS_BELOW // letters if letters else 3))
        crowded = letters * len(ticks) * columns > LETTERS_BELOW
        lines = -(-len(shown) // columns)
        tall = 0.16 * max((tick.count("\n") for tick in axis.ticks), default=0)
        tall += 0.7 * crowded
        height = (_style.current().panel_height + tall) * lines + 0.3
        figure = _style.figure(columns=max(columns, len(ticks) - 3), height=height)
        drawn = _panels.in_percent(table)
        panels = _panels.seaborn_panels(figure, drawn, shown, axis, looks, by="curve", line="curve", columns=columns)
        for measure, axes in panels.items():
            mine = drawn[drawn["measure"] == measure]
            _panels.limit(axes, mine, looks, by="curve")
            shared = mine[mine.duplicated(["at", "accuracy"])]  # a point of several curves has the colour of none
            axes.scatter(shared["at"], shared["accuracy_percent"], s=60, color=_style.INK, zorder=4)
            _panels.scale_x(axes, axis, list(table["x"]), text=_plain)
            axes.set_title(_panels.title(evidence, measure, [p for c in curves for _, p in c.points]), loc="left")
            axes.set_ylabel(_panels.y_label(evidence, measure))
            axes.yaxis.label.set_visible(True)
            axes.xaxis.set_tick_params(labelbottom=True)
            if crowded:  # level names would run into each other
                axes.set_xticks(axes.get_xticks(), axis.ticks, rotation=30, ha="right", rotation_mode="anchor")
            if len(curves) == 1:
                named = [
                    (x, y, f"{y:.1f}", _style.INK) for x, y in zip(mine["at"], mine["accuracy_percent"], strict=True)
                ]
                _style.name_points(axes, named)
        if len(curves) > 1:
            _style.legend(figure, _style.handles(looks, joined=not ticks))
    annotations = tuple(
        _panels.annotation(evidence, panels[measure], p, measure, e, label=p.series, x=at)
        for (p, measure, e), at in zip(explained, table["at"], strict=True)
    )
    estimates = [e for *_, e in explained]
    numbers = {(e.num_seeds, e.num_draws, e.num_test) for e in estimates}
    seeds, draws, tests = (max(part) for part in zip(*numbers, strict=True))
    n = f"n: {seeds} seeds" + (f" × {draws} few-shot samples" if draws else "") + f", up to {tests:,} test images."
    return Drawing(
        figure=figure,
        data=table.drop(columns="at")
        .rename(columns={"x": x_name})
        .assign(**({x_name: table["x"].map(lambda x: ticks[int(x)])} if ticks else {})),
        annotations=annotations,
        alt=alt,
        caption=f"{caption} {n} {contents(estimates)}",
    )


def _row(measure: str, curve: Curve, x: float, point: Point, e: Estimate) -> dict[str, Any]:
    return {
        "measure": measure,
        "curve": curve.label,
        "x": x,
        "model": point.model,
        "params": point.params,
        "train_flops": point.train_flops,
        "accuracy": e.value,
        "low": e.low,
        "high": e.high,
        "seeds": e.num_seeds,
        "draws": e.num_draws,
        "test_images": e.num_test,
    }


def _wrapped(name: str) -> str:
    lines = (
        textwrap.wrap(part, PLACE_LINE_LETTERS, break_long_words=False, break_on_hyphens=False)
        for part in name.split("\n")
    )
    return "\n".join(itertools.chain(*lines))


def _plain(value: float) -> str:
    return f"{value:.4f}".rstrip("0").rstrip(".") if value < 1 else compact(value)
