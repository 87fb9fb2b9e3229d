"""Panels that the compute and the data-size figures share: marks with intervals, baselines, legend, CSV rows."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from matplotlib.collections import LineCollection
from matplotlib.lines import Line2D
from matplotlib.patheffects import withStroke

from bench.analysis.evidence import FAR, HEADLINE, UPSTREAM, Evidence, Point
from bench.core.formatting import plural, short_count
from bench.report.figures import _reference, _style
from bench.report.figures._contract import Drawing, Mark, NothingToDraw
from bench.report.figures._marks import point_text
from bench.stats.intervals import Estimate, contents

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TITLE_WIDTH = 34  # characters that fit above a panel
HOW = {"finetune": ", fine-tuned", "linear": ", linear probe", "vtab": ""}  # tasks in a panel's title
LEGEND_WIDTH = 0.75  # of a panel's
MAX_NAMED = 14  # lines a legend can name; beyond that it names families and sizes
CROWDED = 400  # marks in a panel above which they are drawn small and without intervals' full strength
RASTER = 200  # marks of a family in a panel above which the SVG holds them as a picture: it stays small and quick


@dataclass(frozen=True, kw_only=True)
class Line:
    """One line of a panel: points of one model in order of x, with how it looks."""

    label: str
    family: str
    points: tuple[Point, ...]
    x: tuple[float, ...]
    size: float  # marker diameter in points
    style: int = 0  # tells lines apart that share family and size, see `_style.apart`


@dataclass(kw_only=True)
class _Collected:
    """What the panels drew: rows of the CSV, estimates for the caption."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    estimates: list[Estimate] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)


def panel_measures(evidence: Evidence) -> list[str]:
    """The average of the headline tasks first, then every task, upstream accuracy last."""
    single = list(evidence.measures)
    return ([HEADLINE] if len(evidence.headline) > 1 else []) + single


def draw(
    evidence: Evidence, lines: Sequence[Line], *, x_label: str, x_name: str, caption: str, alt: str,
    dodge: bool = False, reference: Sequence[Line] = (),
) -> Drawing:  # fmt: skip
    """Panels of accuracy against x with intervals and baselines, a legend, and a caption that says what they hold.

    With `dodge`, lines that share their x values are drawn a hair apart, so that no interval hides another.
    `reference` are lines of `evidence.reference`: published points, drawn hollow under the measured ones.
    """
    points = [p for line in lines for p in line.points]
    measures = [m for m in panel_measures(evidence) if any(evidence.estimate(p, m) for p in points)]
    if not measures:
        raise NothingToDraw("no scores at any trained point")
    collected = _Collected()
    if len(lines) <= MAX_NAMED:
        styles = _style.apart([(line.family, line.size) for line in lines])
        lines = [replace(line, style=style) for line, style in zip(lines, styles, strict=True)]
    with _style.context():
        legend_lines = min(len(lines), MAX_NAMED) + 4 + 3 * bool(reference)
        figure, axes_list, legend_axes = grid(len(measures), legend_lines=legend_lines)
        families = tuple(dict.fromkeys(line.family for line in lines))
        xs = [x for line in lines for x in line.x]
        shift = _dodge(len(lines), max(xs) / min(xs)) if dodge else [1.0] * len(lines)
        for axes, measure in zip(axes_list, measures, strict=True):
            _panel(axes, evidence, lines, measure, families, collected, x_name, shift)
            laid = _reference.overlay(axes, evidence, reference, measure, families, x_name)
            collected.rows += laid.rows
            collected.marks += laid.marks
            _style.plain_log_x(axes, [*xs, *laid.x])
            axes.set_title(title(evidence, measure, points), fontweight="bold" if measure == HEADLINE else "normal")
            axes.set_ylabel(y_label(evidence, measure))
            axes.set_xlabel(x_label)
        _legend(legend_axes, evidence, lines, families, reference)
    shown = _what_is_shown(evidence, measures, collected, lines)
    return Drawing(
        figure=figure, data=pd.DataFrame(collected.rows), alt=alt, marks=tuple(collected.marks),
        caption=" ".join([caption, shown, *_reference.sentences(evidence, measures, reference)]),
    )  # fmt: skip


def told_apart(lines: Sequence[Line]) -> str:
    """How lines of one family and size differ, for the caption; "" where none are alike, or where none is named."""
    alike = len(lines) <= MAX_NAMED and any(_style.apart([(line.family, line.size) for line in lines]))
    return "; those of like size and family differ in fill and dash" if alike else ""


def baselines(evidence: Evidence) -> str:
    """The lines that are there for comparison, for the sentence that replaces a picture."""
    lines = [*(["raw pixels"] if evidence.pixels else []),
             *(["untrained networks"] if any(s.untrained for s in evidence.series) else [])]  # fmt: skip
    return f", with {' and '.join(lines)} as baselines" if lines else ""


def grid(panels: int, *, legend_lines: int) -> tuple[Figure, list[Axes], Axes]:
    """Panels three to a row; the legend takes the first free place, or a strip below."""
    columns = min(3, panels + 1)
    rows = math.ceil(panels / columns)
    strip = panels % columns == 0
    legend_height = 0.24 * math.ceil(legend_lines / columns) + 0.1
    height = 3.3 * rows + (legend_height if strip else 0)
    if rows == 1 and not strip:
        height = max(height, 0.24 * legend_lines + 0.7)
    figure = _style.figure(height=height)
    ratios = [3.3] * rows + ([legend_height] if strip else [])
    beside = rows == 1 and not strip  # a legend of its own column needs less width than a panel
    widths = [1.0] * (columns - 1) + [LEGEND_WIDTH if beside else 1.0]
    grid = figure.add_gridspec(len(ratios), columns, height_ratios=ratios, width_ratios=widths)
    axes = [figure.add_subplot(grid[i // columns, i % columns]) for i in range(panels)]
    legend = figure.add_subplot(grid[rows, :] if strip else grid[panels // columns, panels % columns])
    legend.axis("off")
    return figure, axes, legend


def _panel(
    axes: Axes, evidence: Evidence, lines: Sequence[Line], measure: str, families: tuple[str, ...],
    collected: _Collected, x_name: str, shift: Sequence[float],
) -> None:  # fmt: skip
    tops: list[float] = []
    for order, family in enumerate(families):  # one collection per family: thousands of points stay quick to draw
        marks: list[tuple[float, float, float, float]] = []  # x, accuracy, half-width, diameter
        paths, dashes = [], []
        colour, marker = _style.look(family, families)
        for line, factor in zip(lines, shift, strict=True):
            places = zip(line.x, line.points, strict=True)
            found = [(x, p, e) for x, p in places if (e := evidence.estimate(p, measure))]
            if line.family != family or not found:
                continue
            mine = [(x * factor, 100 * e.value, 100 * e.half, line.size) for x, _, e in found]
            paths.append([(x, y) for x, y, _, _ in mine])
            dashes.append(_style.DASHES[line.style])
            marks += mine
            if line.style:
                axes.plot([x for x, *_ in mine], [y for _, y, *_ in mine], linestyle="", marker=marker, color=colour,
                          markersize=line.size, fillstyle=_style.FILLS[line.style], markerfacecoloralt="white",
                          zorder=4)  # fmt: skip
            kind = "published" if evidence.published else "trained"
            for mark_x, point, e in found:
                collected.rows.append(_row(measure, kind, line.label, point, e) | {x_name: mark_x})
                collected.estimates.append(e)
                text = partial(point_text, evidence, point, measure, e, label=line.label)
                cells = () if evidence.published else evidence.cells.get(point.variant, ())
                collected.marks.append(Mark(axes=axes, x=mark_x * factor, y=100 * e.value, text=text, cells=cells))
        if marks:
            _marks(axes, paths, dashes, np.asarray(marks), (colour, marker), order, hollow=evidence.published)
            tops += [y + sign * half for _, y, half, _ in marks for sign in (-1, 1)]
    low, high = min(tops), max(tops)
    low, high = _pixel_line(axes, evidence, measure, collected, x_name, low, high)
    low = _untrained_lines(axes, evidence, lines, measure, families, collected, x_name, low, high)
    margin = 0.05 * (high - low)
    axes.set_ylim(max(0, low - margin), min(100.5, high + margin))


def _marks(
    axes: Axes, paths: list[Any], dashes: list[Any], marks: np.ndarray, look: tuple[str, str], order: int, *,
    hollow: bool,
) -> None:  # fmt: skip
    """Faint lines, intervals and markers of one family."""
    colour, marker = look
    x, y, half, size = marks.T
    above = 3 + 0.01 * order
    crowded, raster = len(marks) > CROWDED, len(marks) > RASTER
    axes.add_collection(LineCollection(paths, colors=colour, linewidths=0.5 if crowded else 1.1, linestyles=dashes,
                                       alpha=0.2 if crowded else 0.45, zorder=2, rasterized=raster))  # fmt: skip
    ends = np.stack([y - half, y + half, np.full(len(y), np.nan)], axis=1)  # one path with gaps: quick to draw
    axes.plot(np.repeat(x, 3), ends.ravel(), color=colour, linewidth=0.5 if crowded else 1.1, solid_capstyle="butt",
              alpha=0.35 if crowded else 1.0, zorder=above, rasterized=raster)  # fmt: skip
    axes.scatter(
        x, y, s=(size * (0.6 if crowded else 1.0)) ** 2, c="white" if hollow else colour, marker=marker,
        edgecolors=colour if hollow else "white", linewidths=1.3 if hollow else 0.3 if crowded else 0.7,
        zorder=above + 0.005, rasterized=raster,
    )  # fmt: skip


def _dodge(lines: int, span: float) -> list[float]:
    """Factors on x that set lines 1 % of the axis apart, or all of many within a tenth of it."""
    step = min(0.011, 0.1 / max(1, lines - 1))
    return [span ** (step * (i - (lines - 1) / 2)) for i in range(lines)]


def _pixel_line(
    axes: Axes, evidence: Evidence, measure: str, collected: _Collected, x_name: str, low: float, high: float
) -> tuple[float, float]:
    e = evidence.estimate(evidence.pixels, measure)
    if e is None or evidence.pixels is None:
        return low, high
    axes.axhspan(100 * e.low, 100 * e.high, color="#000000", alpha=0.07, linewidth=0, zorder=0)
    axes.axhline(100 * e.value, color=_style.PIXELS_COLOUR, linestyle="-.", linewidth=1.2, zorder=1)
    collected.rows.append(_row(measure, "raw pixels", "raw pixels", evidence.pixels, e) | {x_name: math.nan})
    return min(low, 100 * e.value), max(high, 100 * e.value)


def _untrained_lines(
    axes: Axes, evidence: Evidence, lines: Sequence[Line], measure: str, families: tuple[str, ...],
    collected: _Collected, x_name: str, low: float, high: float,
) -> float:  # fmt: skip
    """A dashed line per family: the mean over its untrained networks. One far below the panel is written instead."""
    below, lowest = [], low
    for family in families:
        variants = {p.variant for line in lines if line.family == family for p in line.points}
        blank = [s.untrained for s in evidence.series if s.variant in variants and s.untrained]
        found = {p.model: e for p in blank if (e := evidence.estimate(p, measure))}
        if not found:
            continue
        value = 100 * float(np.mean([e.value for e in found.values()]))
        row = {"measure": measure, "kind": "untrained", "series": f"untrained {family} (mean of {len(found)} models)",
               "family": family, "accuracy": value / 100, x_name: math.nan}  # fmt: skip
        collected.rows.append(row)
        if value < low - 0.3 * (high - low):  # the panel is for the trained models: do not squeeze them
            below.append(f"{family} {value:.0f} %")
            continue
        lowest = min(lowest, value)
        axes.axhline(value, color=_style.look(family, families)[0], linestyle=(0, (4, 2.5)), linewidth=1.2, zorder=1)
    if below:
        axes.text(
            0.98, 0.02, "untrained, below:\n" + ", ".join(below), transform=axes.transAxes, ha="right", va="bottom",
            fontsize=8.5, color="#444444", zorder=5, path_effects=[withStroke(linewidth=2.5, foreground="white")],
        )  # fmt: skip
        lowest -= 0.14 * (high - lowest)  # room for the text
    return lowest


def _legend(
    axes: Axes, evidence: Evidence, lines: Sequence[Line], families: tuple[str, ...], reference: Sequence[Line]
) -> None:
    handles = []
    named = len(lines) <= MAX_NAMED
    for family in families:
        colour, marker = _style.look(family, families)
        members = [line for line in lines if line.family == family]
        sizes = [(line.size, line.style, f"{line.label}, {short_count(line.points[-1].params)} params")
                 for line in members]  # fmt: skip
        for size, style, label in sizes if named else [(7.0, 0, f"{family} ({plural(len(members), 'model')})")]:
            handles.append(Line2D(
                [], [], color=colour, marker=marker, markersize=size, linewidth=1.1, label=label,
                linestyle=_style.DASHES[style], fillstyle=_style.FILLS[style], markerfacecoloralt="white",
                markerfacecolor="white" if evidence.published and not style else colour,
                markeredgecolor=colour if evidence.published or style else "white",
            ))  # fmt: skip
    handles += _reference.handles(evidence, reference, families)
    if evidence.pixels:
        handles.append(Line2D([], [], color=_style.PIXELS_COLOUR, linestyle="-.", linewidth=1.2, label="raw pixels"))
    if any(series.untrained for series in evidence.series):
        handles.append(Line2D([], [], color="#777777", linestyle=(0, (4, 2.5)), linewidth=1.2,
                              label="untrained, mean of the family"))  # fmt: skip
    place_legend(axes, handles)


def place_legend(axes: Axes, handles: Sequence[Line2D]) -> None:
    """A legend in the free place or strip that `grid` left for it."""
    place = axes.get_subplotspec()
    wide = place is not None and len(place.colspan) > 1
    axes.legend(handles=handles, loc="center" if wide else "center left", ncols=3 if wide else 1, borderaxespad=0.0,
                bbox_to_anchor=(0.5, 0.5) if wide else (0.0, 0.5), handlelength=2.2, labelspacing=0.45)  # fmt: skip


def title(evidence: Evidence, measure: str, points: Sequence[Point]) -> str:
    """A panel's title, broken where it is wider than the panel."""
    name = evidence.name(measure, points)
    name = f"{name}, far" if measure in evidence.far and FAR not in name else name
    return textwrap.fill(_readable(name), TITLE_WIDTH, break_on_hyphens=False)


def _readable(name: str) -> str:
    """"finetune@56px:mnist (handwriting)" -> "mnist (handwriting), fine-tuned at 56 px"."""
    task, _, rest = name.partition(":")
    task, _, size = task.partition("@")
    if task not in HOW or not rest:
        return name
    return rest + HOW[task] + (f" at {size.removesuffix('px')} px" if size else "")


def y_label(evidence: Evidence, measure: str) -> str:
    """What an accuracy axis shows."""
    if measure == UPSTREAM:
        return "Upstream accuracy [%]"
    few_shot = evidence.shots and not any(":" in part for part in evidence.parts(measure))
    for start, how in (("finetune", "Fine-tuned"), ("linear:", "Linear-probe")):
        if all(part.startswith(start) for part in evidence.parts(measure)):
            return f"{how} accuracy [%]"
    return f"{evidence.shots}-shot accuracy [%]" if few_shot else "Accuracy [%]"


def _row(measure: str, kind: str, label: str, point: Point, e: Estimate) -> dict[str, Any]:
    return {
        "measure": measure, "kind": kind, "series": label, "family": point.family, "params": point.params,
        "params_body": point.params_body, "num_images": point.num_images, "unique_images": point.unique_images,
        "images_seen": point.images_seen,
        "train_flops": point.train_flops, "accuracy": e.value, "low": e.low, "high": e.high, "seeds": e.num_seeds,
        "draws": e.num_draws, "test_images": e.num_test, "excluded": "; ".join(e.excluded),
    }  # fmt: skip


def _what_is_shown(
    evidence: Evidence, measures: Sequence[str], collected: _Collected, lines: Sequence[Line]
) -> str:
    estimates = collected.estimates
    if evidence.published:
        return _reference.what_is_quoted(evidence, measures, estimates)
    seeds = _span([e.num_seeds for e in estimates], "training seed")
    draws = _span([e.num_draws for e in estimates if e.num_draws], "few-shot draw" if evidence.shots else "draw")
    tests = []
    for measure in measures:
        if measure not in (HEADLINE, FAR):
            rows = [r for r in collected.rows if r["measure"] == measure]
            sizes = sorted({int(r["test_images"]) for r in rows if "test_images" in r})
            tests.append(f"{measure} {sizes[0]:,}" if sizes else measure)
    upstream_kinds = sorted({f"{p.data} ({p.kind})" for line in lines for p in line.points})
    shots = f"{evidence.shots}-shot linear probe. " if evidence.shots else ""
    average = f"The average is over {', '.join(evidence.headline)}. " if HEADLINE in measures else ""
    trained_on = [(p.data, p.num_images) for line in lines for p in line.points]
    return (
        f"Pre-training images: {', '.join(upstream_kinds)}. {shots}{average}n: {seeds}"
        + (f" × {draws}" if draws else "")
        + f"; test images: {', '.join(tests)}. {contents(estimates, trained_on=trained_on)} Models share draws and "
        "test images, so differences between them are surer than overlapping bars suggest."
    )


def _span(values: Sequence[int], noun: str) -> str:
    if not values:
        return ""
    low, high = min(values), max(values)
    return plural(low, noun) if low == high else f"{low}–{high} {noun}s"

