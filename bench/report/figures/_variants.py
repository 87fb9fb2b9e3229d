"""Panels that hold variants of one model beside each other: accuracy with its interval, a panel per measure."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from bench.analysis.evidence import Evidence, Point
from bench.core.formatting import compact
from bench.report.figures import _panels, _style
from bench.report.figures._contract import Annotation, Drawing, NothingToDraw
from bench.stats.intervals import Estimate, contents

LOOKS = (*_style.FAMILIES.values(), *_style.SPARE)
LETTERS = 17  # of a place's name on one line
ROOM = 120  # letters beside each other below a row of panels
SPREAD = 0.12  # between curves at one place: in ticks, or of the logarithm of the range in per cent


@dataclass(frozen=True, kw_only=True)
class Curve:
    """Points (x, point) under one label; joined where x is a number."""

    label: str
    points: tuple[tuple[float, Point], ...]


def draw(
    evidence: Evidence,
    curves: Sequence[Curve],
    *,
    measures: Sequence[str],
    x_label: str,
    x_name: str,
    ticks: Sequence[str] = (),
    joined: bool = True,
    caption: str,
    alt: str,
) -> Drawing:
    """A panel per measure.

    Args:
        ticks: names of the places 0, 1, …: x is no number then; otherwise its axis is logarithmic.
        joined: whether lines join the points of a curve.

    Raises:
        NothingToDraw: no point was scored on any of these measures.
    """
    shown = [m for m in measures if any(evidence.estimate(p, m) for c in curves for _, p in c.points)]
    if not shown or not curves:
        raise NothingToDraw("no variants were scored")
    rows: list[dict[str, Any]] = []
    annotations: list[Annotation] = []
    found: list[Estimate] = []
    xs = [x for c in curves for x, _ in c.points]
    with _style.context():
        legend = len(curves) > 1
        names = [[part for line in tick.split("\n") for part in _wrapped(line)] for tick in ticks]
        needed = len(names) * max((len(line) for name in names for line in name), default=0)
        columns = min(3, len(shown), max(1, ROOM // needed if needed else 3))
        lines = -(-len(shown) // columns)
        height = (4.1 if columns > 1 or lines == 1 else 3.2) + 0.16 * (max(map(len, names), default=1) - 1)
        figure = _style.figure(height=height * lines + 0.25 * legend)
        panels = figure.subplots(lines, columns, squeeze=False).flatten()
        for spare in panels[len(shown) :]:
            spare.remove()
        for axes, measure in zip(panels, shown, strict=False):
            for number, curve in enumerate(curves):
                colour, marker = LOOKS[number % len(LOOKS)]
                known = [(x, p, e) for x, p in curve.points if (e := evidence.estimate(p, measure))]
                if not known:
                    continue
                off = SPREAD * (number - (len(curves) - 1) / 2)
                at = [x + off if ticks else x * (max(xs) / min(xs)) ** (off / 10) for x, _, _ in known]
                axes.errorbar(
                    at,
                    [100 * e.value for *_, e in known],
                    yerr=[[100 * (e.value - e.low) for *_, e in known], [100 * (e.high - e.value) for *_, e in known]],
                    color=colour,
                    marker=marker,
                    markersize=7,
                    linewidth=1.2 if joined else 0,
                    elinewidth=1.2,
                    label=curve.label,
                )
                for place, (x, point, e) in zip(at, known, strict=True):
                    found.append(e)
                    rows.append(
                        {
                            "measure": measure,
                            "curve": curve.label,
                            x_name: ticks[int(x)] if ticks else x,
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
                    )
                    annotations.append(
                        _panels.annotation(evidence, axes, point, measure, e, label=point.series, x=place)
                    )
            if ticks:
                axes.set_xticks(range(len(ticks)), ["\n".join(name) for name in names])
                axes.set_xlim(-0.5, len(ticks) - 0.5)
                axes.grid(axis="x", visible=False)
            else:
                _style.plain_log_x(axes, xs, text=_plain)
            axes.set(
                title=_panels.title(evidence, measure, [p for c in curves for _, p in c.points]),
                xlabel=x_label,
                ylabel=_panels.y_label(evidence, measure),
            )
        if legend:
            handles, labels = axes.get_legend_handles_labels()
            figure.legend(handles, labels, loc="outside lower center", ncols=min(6, len(labels)))
    numbers = {(e.num_seeds, e.num_draws, e.num_test) for e in found}
    seeds, draws, tests = (max(part) for part in zip(*numbers, strict=True))
    n = f"n: {seeds} seeds" + (f" × {draws} draws" if draws else "") + f", up to {tests:,} test images."
    return Drawing(
        figure=figure,
        data=pd.DataFrame(rows),
        annotations=tuple(annotations),
        alt=alt,
        caption=f"{caption} {n} {contents(found)}",
    )


def _wrapped(line: str) -> list[str]:
    return textwrap.wrap(line, LETTERS, break_long_words=False, break_on_hyphens=False)


def _plain(value: float) -> str:
    return f"{value:.4f}".rstrip("0").rstrip(".") if value < 1 else compact(value)
