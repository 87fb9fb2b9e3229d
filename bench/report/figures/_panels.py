"""Panels of accuracy against x, one per task: lines with intervals, baselines, published points, legend, caption."""

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

from baselines.published import SOURCE
from bench.analysis.evidence import FAR, HEADLINE, UPSTREAM, Evidence, Point
from bench.core.formatting import count, flops, interval, measure_text, plural, set_and_task, short_count
from bench.report.figures import _style
from bench.report.figures._contract import Annotation, Drawing, NothingToDraw
from bench.stats.intervals import Estimate, contents

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TITLE_WIDTH = 34  # characters that fit above a panel
PANEL_HEIGHT, LEGEND_LINE = 3.3, 0.24  # inches
LEGEND_WIDTH = 0.75  # of a panel's
MAX_NAMED = 14  # lines a legend can name; beyond that it names families
CROWDED = 300  # points of a family in a panel above which they are small, and a bitmap in the SVG
UNTRAINED_DASH = (0, (4, 2.5))


@dataclass(frozen=True, kw_only=True)
class Line:
    """One line of a panel: points of one model in order of x, with how it looks."""

    label: str
    family: str
    points: tuple[Point, ...]
    x: tuple[float, ...]
    size: float  # marker diameter in points
    style: int = 0  # distinguishes lines of one family and size, see `_style.apart`


@dataclass(kw_only=True)
class _Drawn:
    """What the panels hold so far: rows of the CSV, estimates for the caption, what can be pointed at."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    estimates: list[Estimate] = field(default_factory=list)
    annotations: list[Annotation] = field(default_factory=list)

    def add(
        self,
        axes: Axes,
        evidence: Evidence,
        line: Line,
        point: Point,
        e: Estimate,
        *,
        measure: str,
        panel: str,
        x: float,
        at: float,
    ) -> None:
        """One point of the panel of a measure, whatever the evidence calls it; drawn at `at`, a little off `x`."""
        kind = "published" if evidence.published else "trained"
        self.rows.append(_row(panel, kind, line.label, point, e) | {"x": x})
        self.annotations.append(annotation(evidence, axes, point, measure, e, label=line.label, x=at))


def measures_of(evidence: Evidence) -> list[str]:
    """The average of the headline tasks first, then every task, upstream accuracy last."""
    return ([HEADLINE] if len(evidence.headline) > 1 else []) + list(evidence.measures)


def draw(
    evidence: Evidence,
    lines: Sequence[Line],
    *,
    x_label: str,
    x_name: str,
    caption: str,
    alt: str,
    measures: Sequence[str] = (),
    reference: Sequence[Line] = (),
    dodge: bool = False,
    ticks: Sequence[str] = (),
    handles: Sequence[Artist] = (),
) -> Drawing:
    """A panel per measure that any point was scored on.

    Args:
        x_name: the column of x in the CSV.
        measures: which to draw, `measures_of` by default.
        reference: lines of `evidence.reference`: published points, drawn hollow under the measured ones.
        dodge: lines are drawn a little apart, so that no interval hides another.
        ticks: names of the places 0, 1, …: x is no number then, and not logarithmic.
        handles: entries of the legend for what the caller adds to the panels.
    """
    points = [p for line in lines for p in line.points]
    shown = [m for m in measures or measures_of(evidence) if any(evidence.estimate(p, m) for p in points)]
    if not shown:
        raise NothingToDraw("no scores at any trained point")
    if len(lines) <= MAX_NAMED:
        styles = _style.apart([(line.family, line.size) for line in lines])
        lines = [replace(line, style=style) for line, style in zip(lines, styles, strict=True)]
    families = tuple(dict.fromkeys(line.family for line in lines))
    xs = [x for line in lines for x in line.x]
    at = apart([line.x for line in lines], ticks=bool(ticks)) if dodge else [line.x for line in lines]
    drawn = _Drawn()
    with _style.context():
        entries = min(len(lines), MAX_NAMED) + 4 + 3 * bool(reference) + len(handles)
        figure, panels, legend = grid(len(shown), legend_lines=entries)
        for axes, measure in zip(panels, shown, strict=True):
            low, high = _lines(axes, evidence, list(zip(lines, at, strict=True)), measure, families, drawn)
            low, high = _pixels(axes, evidence, measure, drawn, low, high)
            low = _untrained(axes, evidence, lines, measure, families, drawn, low, high)
            low, high, quoted = _published(axes, evidence, reference, measure, families, drawn, low, high)
            margin = 0.05 * (high - low) or 1.0
            axes.set_ylim(max(0.0, low - margin), min(100.5, high + margin))
            if ticks:
                axes.set_xticks(range(len(ticks)), ticks)
                axes.set_xlim(-0.5, len(ticks) - 0.5)
            else:
                _style.plain_log_x(axes, [*xs, *quoted])
            axes.set_title(title(evidence, measure, points), fontweight="bold" if measure == HEADLINE else "normal")
            axes.set_ylabel(y_label(evidence, measure))
            axes.set_xlabel(x_label)
        place_legend(legend, [*_handles(evidence, lines, families, reference), *handles])
    parts = [caption, *_what_is_shown(evidence, shown, drawn, lines), *_what_is_quoted(evidence, shown, reference)]
    return Drawing(
        figure=figure,
        data=pd.DataFrame(drawn.rows).rename(columns={"x": x_name}),
        alt=alt,
        annotations=tuple(drawn.annotations),
        caption=" ".join(part for part in parts if part),
    )


def distinguished(lines: Sequence[Line]) -> str:
    """How lines of one family and size differ, for the caption; "" where none are alike, or where none is named."""
    alike = len(lines) <= MAX_NAMED and any(_style.apart([(line.family, line.size) for line in lines]))
    return "; those of like size and family differ in fill and dash" if alike else ""


def grid(panels: int, *, legend_lines: int) -> tuple[Figure, list[Axes], Axes]:
    """Panels three to a row; the legend takes the first free place, or a strip below."""
    columns = min(3, panels + 1)
    rows = math.ceil(panels / columns)
    strip = panels % columns == 0
    legend_height = LEGEND_LINE * math.ceil(legend_lines / columns) + 0.1
    height = PANEL_HEIGHT * rows + (legend_height if strip else 0)
    beside = rows == 1 and not strip  # a legend of its own column needs less width than a panel
    if beside:
        height = max(height, LEGEND_LINE * legend_lines + 0.7)
    figure = _style.figure(height=height)
    ratios = [PANEL_HEIGHT] * rows + ([legend_height] if strip else [])
    widths = [1.0] * (columns - 1) + [LEGEND_WIDTH if beside else 1.0]
    places = figure.add_gridspec(len(ratios), columns, height_ratios=ratios, width_ratios=widths)
    axes = [figure.add_subplot(places[i // columns, i % columns]) for i in range(panels)]
    legend = figure.add_subplot(places[rows, :] if strip else places[panels // columns, panels % columns])
    legend.axis("off")
    return figure, axes, legend


def place_legend(axes: Axes, handles: Sequence[Any]) -> None:
    """A legend in the free place or strip that `grid` left for it."""
    place = axes.get_subplotspec()
    wide = place is not None and len(place.colspan) > 1
    axes.legend(
        handles=handles,
        loc="center" if wide else "center left",
        ncols=3 if wide else 1,
        borderaxespad=0.0,
        bbox_to_anchor=(0.5, 0.5) if wide else (0.0, 0.5),
        handlelength=2.2,
        labelspacing=0.45,
    )


def apart(lines: Sequence[Sequence[float]], *, ticks: bool = False) -> list[list[float]]:
    """The x of every line, moved so that lines lie 1 % of a logarithmic axis apart, or all of many within a tenth of
    it; with ticks at 0, 1, … within a third of the way to the next."""
    gaps = max(1, len(lines) - 1)
    places = [number - (len(lines) - 1) / 2 for number in range(len(lines))]
    if ticks:
        return [[x + 0.36 * place / gaps for x in xs] for xs, place in zip(lines, places, strict=True)]
    span, step = max(map(max, lines)) / min(map(min, lines)), min(0.011, 0.1 / gaps)
    return [[x * span ** (step * place) for x in xs] for xs, place in zip(lines, places, strict=True)]


# -- one panel -------------------------------------------------------------------------------------------------------


def _lines(
    axes: Axes,
    evidence: Evidence,
    lines: Sequence[tuple[Line, Sequence[float]]],
    measure: str,
    families: Sequence[str],
    drawn: _Drawn,
) -> tuple[float, float]:
    """Every line with its points and intervals; the range of y. One collection per family: thousands are quick."""
    ends: list[float] = []
    for order, family in enumerate(families):
        colour, marker = _style.look(family, families)
        points: list[tuple[float, float, float, float, float]] = []  # x, accuracy, its interval, diameter
        paths, dashes = [], []
        for line, xs in lines:
            found = [
                (x, at, p, e)
                for x, at, p in zip(line.x, xs, line.points, strict=True)
                if line.family == family and (e := evidence.estimate(p, measure))
            ]
            if not found:
                continue
            paths.append([(at, 100 * e.value) for _, at, _, e in found])
            dashes.append(_style.DASHES[line.style])
            points += [(at, 100 * e.value, 100 * e.low, 100 * e.high, line.size) for _, at, _, e in found]
            if line.style:
                axes.plot(
                    *zip(*paths[-1], strict=True),
                    linestyle="",
                    marker=marker,
                    color=colour,
                    zorder=4,
                    markersize=line.size,
                    fillstyle=_style.FILLS[line.style],
                    markerfacecoloralt="white",
                )
            for x, at, point, e in found:
                drawn.estimates.append(e)
                drawn.add(axes, evidence, line, point, e, measure=measure, panel=measure, x=x, at=at)
        if points:
            _family(axes, paths, dashes, np.asarray(points), (colour, marker), order, hollow=evidence.published)
            ends += [end for _, _, low, high, _ in points for end in (low, high)]
    return min(ends), max(ends)


def _family(
    axes: Axes,
    paths: Sequence[Any],
    dashes: Sequence[Any],
    points: np.ndarray,
    look: tuple[str, str],
    order: int,
    *,
    hollow: bool,
) -> None:
    """Faint lines, intervals and markers of one family."""
    (colour, marker), (x, y, low, high, size) = look, points.T
    above, crowded = 3 + 0.01 * order, len(points) > CROWDED
    axes.add_collection(
        LineCollection(
            paths,
            colors=colour,
            linewidths=0.5 if crowded else 1.1,
            linestyles=dashes,
            alpha=0.2 if crowded else 0.45,
            zorder=2,
            rasterized=crowded,
        )
    )
    ends = np.stack([low, high, np.full(len(y), np.nan)], axis=1)  # one path with gaps: quick to draw
    axes.plot(
        np.repeat(x, 3),
        ends.ravel(),
        color=colour,
        linewidth=0.5 if crowded else 1.1,
        solid_capstyle="butt",
        alpha=0.35 if crowded else 1.0,
        zorder=above,
        rasterized=crowded,
    )
    axes.scatter(
        x,
        y,
        s=(size * (0.6 if crowded else 1.0)) ** 2,
        c="white" if hollow else colour,
        marker=marker,
        edgecolors=colour if hollow else "white",
        linewidths=1.3 if hollow else 0.3 if crowded else 0.7,
        zorder=above + 0.005,
        rasterized=crowded,
    )


def _pixels(
    axes: Axes, evidence: Evidence, measure: str, drawn: _Drawn, low: float, high: float
) -> tuple[float, float]:
    """The same probe on raw pixels, with its interval; the range of y with it."""
    e = evidence.estimate(evidence.pixels, measure)
    if e is None or evidence.pixels is None:
        return low, high
    axes.axhspan(100 * e.low, 100 * e.high, color="#000000", alpha=0.07, linewidth=0, zorder=0)
    axes.axhline(100 * e.value, **_style.PIXELS, zorder=1)
    drawn.rows.append(_row(measure, "raw pixels", "raw pixels", evidence.pixels, e) | {"x": math.nan})
    return min(low, 100 * e.value), max(high, 100 * e.value)


def _untrained(
    axes: Axes,
    evidence: Evidence,
    lines: Sequence[Line],
    measure: str,
    families: Sequence[str],
    drawn: _Drawn,
    low: float,
    high: float,
) -> float:
    """A dashed line per family: the mean over its untrained networks. One far below the panel is written instead.
    Returns the low end of y."""
    below, lowest = [], low
    for family in families:
        variants = {p.variant for line in lines if line.family == family for p in line.points}
        blank = [s.untrained for s in evidence.series if s.variant in variants and s.untrained]
        found = {p.model: e for p in blank if (e := evidence.estimate(p, measure))}
        if not found:
            continue
        value = 100 * float(np.mean([e.value for e in found.values()]))
        drawn.rows.append(
            {
                "measure": measure,
                "kind": "untrained",
                "family": family,
                "accuracy": value / 100,
                "series": f"untrained {family} (mean of {len(found)} models)",
                "x": math.nan,
            }
        )
        if value < low - 0.3 * (high - low):  # the panel is for the trained models: do not squeeze them
            below.append(f"{family} {value:.0f} %")
            continue
        lowest = min(lowest, value)
        colour, _ = _style.look(family, families)
        axes.axhline(value, color=colour, linestyle=UNTRAINED_DASH, linewidth=1.2, zorder=1)
    if below:
        axes.text(
            0.98,
            0.02,
            "untrained, below:\n" + ", ".join(below),
            transform=axes.transAxes,
            ha="right",
            va="bottom",
            fontsize=8.5,
            color="#444444",
            zorder=5,
            path_effects=[withStroke(linewidth=2.5, foreground="white")],
        )
        lowest -= 0.14 * (high - lowest)  # room for the text
    return lowest


def _published(
    axes: Axes,
    evidence: Evidence,
    lines: Sequence[Line],
    measure: str,
    families: Sequence[str],
    drawn: _Drawn,
    low: float,
    high: float,
) -> tuple[float, float, list[float]]:
    """Published points of the same measure, hollow and grey; the range of y with them, and their x."""
    theirs, published, quoted = counterpart(evidence, measure), evidence.reference, []
    for line in lines if theirs and published else ():
        assert theirs and published
        found = [(x, p, e) for x, p in zip(line.x, line.points, strict=True) if (e := published.estimate(p, theirs))]
        if not found:
            continue
        quoted += [x for x, _, _ in found]
        values = [100 * e.value for _, _, e in found]
        axes.plot(
            [x for x, _, _ in found], values, **_published_look(line.family, families), markersize=line.size, zorder=1.5
        )
        for x, point, e in found:
            drawn.add(axes, published, line, point, e, measure=theirs, panel=measure, x=x, at=x)
        low, high = min(low, *values), max(high, *values)
    return low, high, quoted


def _published_look(family: str, families: Sequence[str]) -> dict[str, Any]:
    grey = _style.PUBLISHED_COLOUR
    return {
        "color": grey,
        "linestyle": ":",
        "linewidth": 0.9,
        "marker": _style.look(family, families)[1],
        "markerfacecolor": "none",
        "markeredgecolor": grey,
        "markeredgewidth": 1.0,
    }


def counterpart(evidence: Evidence, measure: str) -> str | None:
    """The published measure that belongs beside a measured one: the average beside the average, else the same set."""
    published = evidence.reference
    if published is None or measure == UPSTREAM:
        return None
    if measure == HEADLINE:
        return HEADLINE
    return next((m for m in published.measures if _set(m) == _set(measure)), None)


def _handles(
    evidence: Evidence, lines: Sequence[Line], families: Sequence[str], reference: Sequence[Line]
) -> list[Line2D]:
    """Entries of the legend."""
    handles = []
    for family in families:
        colour, marker = _style.look(family, families)
        members = [line for line in lines if line.family == family]
        entries = [
            (line.size, line.style, f"{line.label}, {short_count(line.points[-1].params)} params") for line in members
        ]
        if len(lines) > MAX_NAMED:
            entries = [(7.0, 0, f"{family} ({plural(len(members), 'model')})")]
        for size, style, label in entries:
            hollow = evidence.published and not style
            handles.append(
                Line2D(
                    [],
                    [],
                    color=colour,
                    marker=marker,
                    markersize=size,
                    linewidth=1.1,
                    markerfacecoloralt="white",
                    label=label.removesuffix(", – params"),
                    linestyle=_style.DASHES[style],
                    fillstyle=_style.FILLS[style],
                    markerfacecolor="white" if hollow else colour,
                    markeredgecolor=colour if evidence.published or style else "white",
                )
            )
    handles += [
        Line2D([], [], **_published_look(family, families), markersize=7.0, label=f"{family}, published")
        for family in dict.fromkeys(line.family for line in reference)
    ]
    if evidence.pixels:
        handles.append(Line2D([], [], **_style.PIXELS, label="raw pixels"))
    if any(series.untrained for series in evidence.series):
        handles.append(
            Line2D(
                [], [], color="#777777", linestyle=UNTRAINED_DASH, linewidth=1.2, label="untrained, mean of the family"
            )
        )
    return handles


# -- words and numbers -----------------------------------------------------------------------------------------------


def point_text(evidence: Evidence, point: Point, measure: str, e: Estimate, *, label: str) -> str:
    """The run: model, size, data, compute; then its score with interval and n. Lines of plain text."""
    size = f" ({short_count(point.params)} parameters)" if point.params == point.params else ""
    lines = [
        f"{label}{size}",
        f"{count(point.unique_images)} images of {point.data}"
        + (f", {count(point.images_seen)} seen" if point.epochs == point.epochs else ""),
        f"{flops(point.train_flops)} of training" if point.train_flops > 0 else "",
        f"{evidence.name(measure, [point])}: {interval(e.value, e.low, e.high)} %",
        "published" if evidence.published else e.counts,
    ]
    return "\n".join(line for line in lines if line)


def annotation(
    evidence: Evidence, axes: Axes, point: Point, measure: str, e: Estimate, *, label: str, x: float
) -> Annotation:
    """The tooltip of a point at (x, its accuracy), with links to its records."""
    text = partial(point_text, evidence, point, measure, e, label=label)
    cells = () if evidence.published else evidence.cells.get(point.variant, ())
    return Annotation(axes=axes, x=x, y=100 * e.value, text=text, cells=cells)


def title(evidence: Evidence, measure: str, points: Sequence[Point]) -> str:
    """A panel's title, broken where it is wider than the panel."""
    name = evidence.name(measure, points)
    name = f"{name}, far" if measure in evidence.far and FAR not in name else name
    return textwrap.fill(", ".join(filter(None, set_and_task(name))), TITLE_WIDTH, break_on_hyphens=False)


def y_label(evidence: Evidence, measure: str) -> str:
    """What an accuracy axis shows: which task gave the scores."""
    shown = evidence.scores["measure"].isin(evidence.parts(measure))
    tasks = {str(task).partition("@")[0] for task in evidence.scores.loc[shown, "task"].unique()}
    how = {"upstream": "Upstream ", "finetune": "Fine-tuned ", "linear": "Linear-probe "}
    if evidence.shots:
        how["fewshot"] = f"{evidence.shots}-shot "
    return f"{how.get(tasks.pop(), '') if len(tasks) == 1 else ''}accuracy [%]".capitalize()


def _row(measure: str, kind: str, label: str, point: Point, e: Estimate) -> dict[str, Any]:
    return {
        "measure": measure,
        "kind": kind,
        "series": label,
        "family": point.family,
        "upstream": point.data,
        "params": point.params,
        "params_body": point.params_body,
        "num_images": point.num_images,
        "unique_images": point.unique_images,
        "images_seen": point.images_seen,
        "train_flops": point.train_flops,
        "accuracy": e.value,
        "low": e.low,
        "high": e.high,
        "seeds": e.num_seeds,
        "draws": e.num_draws,
        "test_images": e.num_test,
        "excluded": "; ".join(e.excluded),
    }


def _what_is_shown(evidence: Evidence, measures: Sequence[str], drawn: _Drawn, lines: Sequence[Line]) -> list[str]:
    """Sentences: images, tasks, n, and what the intervals contain."""
    names = map(_set if evidence.published else measure_text, evidence.headline)
    average = f"The average is over {', '.join(names)}." if HEADLINE in measures else ""
    if evidence.published:
        quoted = f"Hollow: published points, quoted from {SOURCE}, nothing measured here."
        return [quoted, average, contents(drawn.estimates)]
    seeds = _span([e.num_seeds for e in drawn.estimates], "training seed")
    draws = _span([e.num_draws for e in drawn.estimates if e.num_draws], "few-shot draw" if evidence.shots else "draw")
    tests = []
    for measure in measures:
        if measure not in (HEADLINE, FAR):
            sizes = [int(r["test_images"]) for r in drawn.rows if r["measure"] == measure and "test_images" in r]
            tests.append(f"{measure_text(measure)} {min(sizes):,}" if sizes else measure_text(measure))
    upstream = sorted({f"{p.data} ({p.kind})" for line in lines for p in line.points})
    trained_on = [(p.data, p.num_images) for line in lines for p in line.points]
    return [
        f"Pre-training images: {', '.join(upstream)}.",
        f"{evidence.shots}-shot linear probe." if evidence.shots else "",
        average,
        f"n: {' × '.join(filter(None, (seeds, draws)))}; test images: {', '.join(tests)}.",
        contents(drawn.estimates, trained_on=trained_on),
        "Models share draws and test images: differences are surer than overlapping bars suggest.",
    ]


def _what_is_quoted(evidence: Evidence, measures: Sequence[str], lines: Sequence[Line]) -> list[str]:
    """What the published points under the measured ones are."""
    published = evidence.reference
    shown = [m for m in measures if counterpart(evidence, m)] if lines else []
    if published is None or not shown:
        return []
    average = f"in the average panel they are means over {', '.join(map(_set, published.headline))}: other tasks"
    text = f"Hollow, grey: published points ({SOURCE}), fine-tuned at full scale"
    return [f"{text}; {average}." if HEADLINE in shown else f"{text}."]


def _set(measure: str) -> str:
    return measure.rpartition(":")[2]


def _span(values: Sequence[int], noun: str) -> str:
    if not values:
        return ""
    low, high = min(values), max(values)
    return plural(low, noun) if low == high else f"{low}–{high} {noun}s"
