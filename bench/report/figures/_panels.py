"""Draws accuracy against x with seaborn: a figure for the average of the headline tasks (the main ones, whose mean is a
model's score), and a second with a panel per task; with baselines, published points and the caption."""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import seaborn.objects as so
from matplotlib.lines import Line2D

from bench.analysis.evidence import FAR, HEADLINE, UPSTREAM, Evidence, Point
from bench.core.formatting import count, flops, interval, plural, short_count
from bench.core.measure import FEWSHOT, FINETUNE, Measure, measure_text
from bench.report.figures import _style
from bench.report.figures.figure import Annotation, Drawing, NothingToDraw
from bench.stats.intervals import Estimate, contents

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SHORTER = {"flowers102": "flowers"}  # names of data sets that the paper's tables shorten
TITLE_WIDTH = 34  # characters that fit above a panel
COLUMNS = 3  # panels beside each other
LETTERS_BELOW = 44  # letters that fit below a panel of three in a row
MAX_NAME_SHARE = 0.4  # fraction of a figure's width; a name that would take more is broken
MAX_NAMED = 14  # number of lines up to which their names are written beside them
LETTER_INCHES = 0.085  # inches per letter of such a name
CROWDED = 300  # points of a panel above which they are small, and a bitmap in the SVG
NOT_BEGUN = "not begun"  # the kind of a trained point whose network has not begun to learn: it is drawn hollow
PLOTTED = ("trained", NOT_BEGUN, "published")  # kinds of rows that are drawn as points
HOLLOW = (
    "Hollow: the network has not begun to learn there (a training loss within a tenth of that of guessing, or a score "
    "that is not above the untrained network's): in no comparison and no law."
)
UNTRAINED = (0, (4, 2.5))  # dashes of the lines of untrained networks


@dataclass(frozen=True, kw_only=True)
class ModelPoints:
    """The points of one model, which a line may join.

    Attributes:
        label: the model's name.
        family: its family, which decides colour and marker.
        points: the points in order of x.
        x: the x of each point, in units of the axis.
    """

    label: str
    family: str
    points: tuple[Point, ...]
    x: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class XAxis:
    """The x axis of the panels.

    Attributes:
        label: text of the axis, with its unit.
        column: name of the column of x in the CSV.
        ticks: names of the categories 0, 1, …, if x is a category and no number: points of different lines are then
            drawn a little apart, and points of one line are not joined.
        trend: whether the line through a model's points is what the figure is about: it is then drawn strongly, with a
            band.
        linear: whether the axis is linear, from zero; else it is logarithmic.
    """

    label: str
    column: str
    ticks: tuple[str, ...] = ()
    trend: bool = False
    linear: bool = False


def measures_of(evidence: Evidence) -> list[str]:
    """Return the names of the measures (scores of a task on a data set, or averages) to draw: the average of the
    headline tasks if there are several, then every task, upstream accuracy last."""
    return ([HEADLINE] if len(evidence.headline) > 1 else []) + list(evidence.measures)


def draw(
    evidence: Evidence,
    lines: Sequence[ModelPoints],
    axis: XAxis,
    *,
    caption: Sequence[str],
    alt: str,
    measures: Sequence[str] = (),
    reference: Sequence[ModelPoints] = (),
) -> Drawing:
    """Draw the first measure that any point has a score on as a figure of its own, and all further measures as the
    panels of a second figure, with the same data.

    Args:
        lines: points of the models.
        axis: the x axis of all panels.
        caption: the first sentences of the caption; sentences on tasks, n and intervals follow.
        alt: one sentence for those who cannot see the figure.
        measures: names of the measures to draw; () for those of `measures_of`.
        reference: published points of `evidence.reference`, drawn hollow under the measured ones.

    Raises:
        NothingToDraw: no point has a score on any measure.
    """
    points = [p for line in lines for p in line.points]
    shown = [m for m in measures or measures_of(evidence) if any(evidence.estimate(p, m) for p in points)]
    if not shown:
        raise NothingToDraw("no scores at any trained point")
    rows: list[dict[str, Any]] = []
    estimates: list[Estimate] = []
    for measure in shown:
        rows += _trained(evidence, lines, measure, estimates)
        rows += _baselines(evidence, lines, measure)
        rows += _quoted(evidence, reference, measure)
    table = pd.DataFrame(rows)
    if axis.ticks:
        table["at"] = apart(table, "series")
    families = list(dict.fromkeys(line.family for line in lines))
    with _style.context():
        pictures = [_picture(evidence, table, part, axis, families, points) for part in (shown[:1], shown[1:]) if part]
    panels = {measure: axes for _, drawn in pictures for measure, axes in drawn.items()}
    sentences = [*caption, *_what_is_shown(evidence, shown, rows, estimates, lines)]
    sentences += _what_is_quoted(evidence, shown, reference)
    return Drawing(
        figure=pictures[0][0],
        by_task=pictures[1][0] if len(pictures) > 1 else None,
        data=table.drop(columns=["at", "explained", "cells"]).rename(columns={"x": axis.column}),
        alt=alt,
        annotations=tuple(
            Annotation(
                axes=panels[row["measure"]], x=at, y=100 * row["accuracy"], text=row["explained"], cells=row["cells"]
            )
            for row, at in zip(rows, table["at"], strict=True)
            if row["kind"] in PLOTTED
        ),
        caption=tuple(filter(None, sentences)),
    )


# -- rows of the data ------------------------------------------------------------------------------------------------


def _trained(
    evidence: Evidence, lines: Sequence[ModelPoints], measure: str, estimates: list[Estimate]
) -> list[dict[str, Any]]:
    """Return a row of the figure's table for each point that has a score on the measure, family by family, and append
    the points' means with intervals to `estimates`."""
    kind = "published" if evidence.published else "trained"
    rows = []
    for family in dict.fromkeys(line.family for line in lines):
        for line in (line for line in lines if line.family == family):
            for x, p in zip(line.x, line.points, strict=True):
                if e := evidence.estimate(p, measure):
                    estimates.append(e)
                    of_point = NOT_BEGUN if p.key in evidence.not_begun else kind
                    rows.append(
                        _row(measure, of_point, line.label, p, e) | _explained(evidence, line, p, measure, e, x)
                    )
    return rows


def _explained(evidence: Evidence, line: ModelPoints, p: Point, measure: str, e: Estimate, x: float) -> dict[str, Any]:
    """Return the columns of a point's row that serve its tooltip: its place on the x axis, the names of its cells, and
    a function that returns the text."""
    cells = () if evidence.published else evidence.cells.get(p.variant, ())
    return {
        "x": x,
        "at": x,
        "cells": cells,
        "explained": partial(point_text, evidence, p, measure, e, label=line.label),
    }


def _baselines(evidence: Evidence, lines: Sequence[ModelPoints], measure: str) -> list[dict[str, Any]]:
    """Return the table's rows for the baselines of a panel: the same probe on raw pixels; and for each family the mean
    score of its untrained networks."""
    nowhere = {"x": math.nan, "at": math.nan, "cells": (), "explained": ""}
    pixels = evidence.estimate(evidence.pixels, measure)
    rows = []
    if pixels is not None and evidence.pixels is not None:
        rows.append(_row(measure, "raw pixels", "raw pixels", evidence.pixels, pixels) | nowhere)
    for family in dict.fromkeys(line.family for line in lines):
        variants = {p.variant for line in lines if line.family == family for p in line.points}
        blank = [s.untrained for s in evidence.series if s.variant in variants and s.untrained]
        known = {p.model: e.value for p in blank if (e := evidence.estimate(p, measure))}
        if known:
            name = f"untrained {family} (mean of {len(known)} models)"
            about = {"measure": measure, "kind": "untrained", "series": name, "family": family}
            rows.append(about | {"accuracy": float(np.mean(list(known.values())))} | nowhere)
    return rows


def _quoted(evidence: Evidence, lines: Sequence[ModelPoints], measure: str) -> list[dict[str, Any]]:
    """Return the table's rows for the published points `lines` that are drawn in the panel of a measure; empty if no
    published measure corresponds to it."""
    theirs, published = counterpart(evidence, measure), evidence.reference
    if not theirs or not published:
        return []
    return [
        _row(measure, "published", line.label, p, e) | _explained(published, line, p, theirs, e, x)
        for line in lines
        for x, p in zip(line.x, line.points, strict=True)
        if (e := published.estimate(p, theirs))
    ]


def counterpart(evidence: Evidence, measure: str) -> str | None:
    """Return the name of the published measure to draw in the panel of a measure of this study: the published average
    beside the average, else a published accuracy on the same data set; None if there is neither."""
    published = evidence.reference
    if published is None:
        return None
    if measure in (HEADLINE, UPSTREAM) and published.controlled:
        return HEADLINE if measure == HEADLINE else None
    return next((m for m in published.measures if _set(m) == _set(measure) and _tuned(m) <= _tuned(measure)), None)


# -- pictures --------------------------------------------------------------------------------------------------------


def _picture(
    evidence: Evidence,
    table: pd.DataFrame,
    measures: Sequence[str],
    axis: XAxis,
    families: Sequence[str],
    points: Sequence[Point],
) -> tuple[Figure, dict[str, Axes]]:
    """Draw one figure with a panel per measure. Return it, and measure -> panel.

    Args:
        table: the rows of all points and baselines.
        families: all families shown, which decide the colours.
        points: all points of this study that are shown.
    """
    single = len(measures) == 1
    columns = _style.columns(2 if sum(map(len, axis.ticks)) > LETTERS_BELOW else COLUMNS)
    rows = -(-len(measures) // columns)
    height = None if single else _style.current().panel_height * rows + 0.4
    figure = _style.figure(columns=len(measures), height=height)
    table = table[table["measure"].isin(measures)]
    looks = {family: _style.look(family, families) for family in families}
    own = points_of(table, evidence)
    panels = seaborn_panels(figure, own, measures, axis, looks, by="family", columns=columns, hollow=evidence.published)
    quoted = table[(table["kind"] == "published") & (not evidence.published)]
    for measure, axes in panels.items():
        mine = table[table["measure"] == measure]
        beside = 100 * quoted.loc[quoted["measure"] == measure, "accuracy"]
        limit(axes, own[own["measure"] == measure], looks, by="family", also=beside)
        _lines_of_baselines(axes, mine, families)
        for family, theirs in quoted[quoted["measure"] == measure].groupby("family", sort=False):
            axes.scatter(theirs["x"], 100 * theirs["accuracy"], **_published_look(str(family), families))
        scale_x(axes, axis, list(table["x"].dropna()), room=_room(own, axis) if single else 0.0)
        axes.set_title(
            "" if single and measure != HEADLINE else _style.wrapped(title(evidence, measure, points), columns),
            loc="left",
        )
        axes.set_ylabel(y_label(evidence, measure))
    drawn = any(line.get_linestyle() == "--" for axes in panels.values() for line in axes.get_lines())
    _style.legend(figure, _handles(evidence, table, families, quoted, untrained=drawn))
    if single:
        _name_lines(panels[measures[0]], own, families, axis)
    return figure, panels


def points_of(table: pd.DataFrame, evidence: Evidence) -> pd.DataFrame:
    """Return the rows of the table that are points of this study, with columns in percent."""
    return in_percent(table[table["kind"].isin(["published"] if evidence.published else ["trained", NOT_BEGUN])])


def in_percent(table: pd.DataFrame) -> pd.DataFrame:
    """Return the table with further columns in percent, "accuracy_percent", "low_percent" and "high_percent", which
    `seaborn_panels` draws."""
    return table.assign(**{f"{name}_percent": 100 * table[name] for name in ("accuracy", "low", "high")})


def seaborn_panels(
    figure: Figure,
    table: pd.DataFrame,
    measures: Sequence[str],
    axis: XAxis,
    looks: Mapping[str, tuple[str, str]],
    *,
    by: str,
    line: str = "series",
    columns: int = COLUMNS,
    hollow: bool = False,
) -> dict[str, Axes]:
    """Draw a panel per measure with points, their intervals and the lines that join them. Return measure -> panel.

    Args:
        table: what `in_percent` returned, with a column `measure` and a column `at`, the place on the x axis.
        looks: value of the column `by` -> (colour, marker).
        by: the column whose values decide colour and marker.
        line: the column whose values each have a line.
        columns: panels beside each other, at most.
        hollow: whether all points are drawn hollow.
    """
    crowded = len(table) > CROWDED * len(measures)
    bitmap = {"rasterized": crowded}
    plot = (
        so.Plot(table, x="at", y="accuracy_percent", ymin="low_percent", ymax="high_percent", color=by)
        .facet(col="measure", order=list(measures), wrap=columns)
        .share(y=False)
        .scale(
            color=so.Nominal({key: colour for key, (colour, _) in looks.items()}),
            marker=so.Nominal({key: marker for key, (_, marker) in looks.items()}),
        )
        .theme(_style.theme())
        .on(figure)
    )
    if axis.trend:
        plot = plot.add(so.Band(alpha=0.1, edgewidth=0), group=line, legend=False)
    else:
        intervals = so.Range(
            linewidth=0.5 if crowded else 1.1, alpha=0.35 if crowded else 0.9, artist_kws=bitmap | {"capstyle": "butt"}
        )
        plot = plot.add(intervals, group=line, legend=False)
    if not axis.ticks:
        faint = so.Lines(linewidth=0.5 if crowded else 1.0, alpha=0.2 if crowded else 0.35, artist_kws=bitmap)
        plot = plot.add(so.Lines(linewidth=1.8) if axis.trend else faint, group=line, legend=False)
    begun = ~table["kind"].eq(NOT_BEGUN) if "kind" in table else pd.Series(True, index=table.index)
    for filled, mine in ((not hollow, table[begun]), (False, table[~begun])):
        if len(mine):
            edge = {"edgewidth": 0.3 if crowded else 0.7} | ({"edgecolor": "w"} if filled else {})
            dots = so.Dot(pointsize=4 if crowded else 6.5, fill=filled, stroke=1.3, artist_kws=bitmap, **edge)
            plot = plot.add(dots, marker=by, legend=False, data=mine)
    plot.plot()
    for axes in figure.axes:
        axes.set_title("")  # seaborn's; the caller's stands to the left
    return dict(zip(measures, figure.axes, strict=True))


def apart(table: pd.DataFrame, by: str) -> np.ndarray:
    """Return the x of the table's points on an axis of categories 0, 1, …, moved sideways by a different amount for
    each value of the column `by`, so that no interval hides another."""
    names = [name for name in dict.fromkeys(table[by]) if (table.loc[table[by] == name, "x"].notna()).any()]
    moved = {name: 0.6 * (number - (len(names) - 1) / 2) / max(2, len(names)) for number, name in enumerate(names)}
    return table["x"].to_numpy() + table[by].map(moved).to_numpy()


def limit(
    axes: Axes, table: pd.DataFrame, looks: Mapping[str, tuple[str, str]], *, by: str, also: Sequence[float] = ()
) -> None:
    """Set the limits of y around a table's points and the values `also` (percent), and draw an arrow where an interval
    goes beyond them. `looks`: value of the column `by` -> (colour, marker)."""
    low, values, high = (table[f"{name}_percent"] for name in ("low", "accuracy", "high"))
    bottom, top = _style.percent_range(low, values, high)
    room = 0.05 * (max([top, *also]) - min([bottom, *also]))
    axes.set_ylim(min([bottom, *(value - room for value in also)]), max([top, *(value + room for value in also)]))
    _style.arrows_where_cut(axes, table["at"], low, high, [looks[key][0] for key in table[by]])


def scale_x(
    axes: Axes, axis: XAxis, values: Sequence[float], *, room: float = 0.0, text: Callable[[float], str] | None = None
) -> None:
    """Set up the x axis as `axis` says: categories with their names, linear from zero, or logarithmic.

    Args:
        values: the x of all points.
        room: fraction of the width to leave free at the right.
        text: formats a number of a logarithmic axis; None: as `_style.plain_log_x` does by default.
    """
    if axis.ticks:
        axes.set_xticks(range(len(axis.ticks)), axis.ticks)
        axes.set_xlim(-0.5, len(axis.ticks) - 0.5 + 2 * room)
        axes.grid(axis="x", visible=False)
    elif axis.linear:
        axes.set_xlim(0, max(values) * (1.03 + room))
    else:
        _style.plain_log_x(axes, values, room=room, text=text)
    axes.set_xlabel(axis.label)


def _lines_of_baselines(axes: Axes, table: pd.DataFrame, families: Sequence[str]) -> None:
    """Draw the baselines of a panel as horizontal lines: raw pixels with their interval, and untrained networks. Write
    the values of untrained networks that are far below the panel at its foot instead. `table`: the panel's rows."""
    for row in table[table["kind"] == "raw pixels"].itertuples():
        axes.axhspan(100 * row.low, 100 * row.high, color="#000000", alpha=0.06, linewidth=0, zorder=0)
        axes.axhline(100 * row.accuracy, **_style.PIXELS, zorder=1)
    low, high = axes.get_ylim()
    pixels = 100 * table.loc[table["kind"] == "raw pixels", ["accuracy", "low"]]
    near = pixels[pixels["accuracy"] > low - 0.25 * (high - low)]
    foot = min([low, *near["low"]])  # no text may cover the line of raw pixels
    below = []
    for row in table[table["kind"] == "untrained"].itertuples():
        value = 100 * row.accuracy
        if value < low - 0.25 * (high - low):  # the panel is for the trained models: do not squeeze them
            below.append(f"{row.family} {value:.0f} %")
            continue
        axes.axhline(
            value, color=_style.look(str(row.family), families)[0], linestyle=UNTRAINED, linewidth=1.1, zorder=1
        )
        axes.set_ylim(bottom=min(axes.get_ylim()[0], value - 0.03 * (high - low)))
    if below:
        axes.set_ylim(bottom=foot - 0.2 * (high - low))
        text = f"untrained, below:\n{', '.join(below)}"
        said = axes.text(
            0.02,
            0.025,
            text,
            transform=axes.transAxes,
            fontsize=_style.text(8),
            zorder=5,
            bbox=_style.BEHIND_TEXT,
        )
        said.set_in_layout(False)


def _published_look(family: str, families: Sequence[str]) -> dict[str, Any]:
    marker = _style.look(family, families)[1]
    return {
        "marker": marker,
        "s": 36,
        "facecolors": "none",
        "edgecolors": _style.GREY,
        "linewidths": 1.0,
        "zorder": 1.5,
    }


def _room(table: pd.DataFrame, axis: XAxis) -> float:
    """Return the fraction of the panel's width to leave free at the right for the names of the lines."""
    if not axis.trend or table["series"].nunique() > MAX_NAMED:
        return 0.14
    lines = "\n".join(map(_narrow, table["series"])).split("\n")
    return LETTER_INCHES * max(map(len, lines)) / _style.current().single[0]


def _narrow(name: str) -> str:
    """Return the name with a line break after a hybrid's "+", where the name in one line would take much of the
    width."""
    share = LETTER_INCHES * len(name) / _style.current().single[0]
    return name if share < MAX_NAME_SHARE else name.replace("+", "+\n", 1)


def _name_lines(axes: Axes, table: pd.DataFrame, families: Sequence[str], axis: XAxis) -> None:
    """Write every model's name beside its last point, where it covers nothing; write no names if there are more than
    `MAX_NAMED`. `table`: the panel's points."""
    if table["series"].nunique() > MAX_NAMED:
        return
    last = table.groupby("series", sort=False).tail(1)
    colours = [_style.look(str(family), families)[0] for family in last["family"]]
    named = list(zip(last["at"], last["accuracy_percent"], last["series"], colours, strict=True))
    if axis.trend:
        for label in _style.name_ends(axes, [(x, y, _narrow(name), colour) for x, y, name, colour in named]):
            label.set_bbox({"facecolor": "white", "edgecolor": "none", "pad": 0.5})  # over the line of a target
        return
    points, low, high = (
        list(zip(table["at"], table[f"{name}_percent"], strict=True)) for name in ("accuracy", "low", "high")
    )
    curves: list[Any] = list(zip(low, high, strict=True))
    if not axis.ticks:
        curves += [
            [points[n] for n in mine] for mine in table.reset_index().groupby("series", sort=False).indices.values()
        ]
    flat = [float(np.asarray(line.get_ydata())[0]) for line in axes.get_lines()]  # the baselines
    _style.name_points(axes, named, curves=[*curves, *([(x, y) for x in axes.get_xlim()] for y in flat)])


def _handles(
    evidence: Evidence, table: pd.DataFrame, families: Sequence[str], quoted: pd.DataFrame, *, untrained: bool
) -> list[Any]:
    """Return the entries of a figure's legend: families, published points, baselines. `quoted`: the table's rows of
    published points; `untrained`: whether lines of untrained networks are drawn."""
    grey: dict[str, Any] = {"color": _style.GREY}
    hollow = grey | {"linestyle": "", "markersize": 6, "markerfacecolor": "none"}
    pixels = Line2D([], [], **_style.PIXELS, label="pixel baseline")
    return [
        *_style.family_handles(families, hollow=evidence.published),
        *(
            Line2D([], [], **hollow, marker=_style.look(family, families)[1], label=f"{family}, published")
            for family in dict.fromkeys(quoted["family"])
        ),
        *([pixels] if "raw pixels" in set(table["kind"]) else []),
        *([Line2D([], [], **grey, linestyle=UNTRAINED, linewidth=1.1, label="untrained (mean)")] if untrained else []),
    ]


# -- words and numbers -----------------------------------------------------------------------------------------------


def point_text(evidence: Evidence, point: Point, measure: str, e: Estimate, *, label: str) -> str:
    """Return a tooltip's text on a point: model, size, data and compute; then its score on a measure with interval and
    n. `e`: the score; `label`: the model's name."""
    size = f" ({short_count(point.params)} parameters)" if point.params == point.params else ""
    lines = [
        f"{label}{size}",
        f"{count(point.unique_images)} images of {point.data}"
        + (f", {count(point.images_seen)} seen" if point.epochs == point.epochs else ""),
        f"{flops(point.train_flops)} of training" if point.train_flops > 0 else "",
        f"{evidence.name(measure, [point])}: {interval(e.value, e.low, e.high)} %",
        "published" if evidence.published else e.counts,
        f"not begun to learn: {evidence.not_begun[point.key]}" if point.key in evidence.not_begun else "",
    ]
    return "\n".join(line for line in lines if line)


def annotation(
    evidence: Evidence, axes: Axes, point: Point, measure: str, e: Estimate, *, label: str, x: float
) -> Annotation:
    """Return the tooltip of a point that is drawn at `x` and its accuracy in percent, with links to its records. `e`:
    the point's score on the measure; `label`: the model's name."""
    text = partial(point_text, evidence, point, measure, e, label=label)
    cells = () if evidence.published else evidence.cells.get(point.variant, ())
    return Annotation(axes=axes, x=x, y=100 * e.value, text=text, cells=cells)


def title(evidence: Evidence, measure: str, points: Sequence[Point]) -> str:
    """Return the title of a measure's panel, with line breaks where it is wider than the panel."""
    parts = evidence.parts(measure)
    named = Measure.parse(parts[0] if len(parts) == 1 else measure)
    name = evidence.with_kind(named.set_text, str(named)) if named.how else evidence.name(measure, points)
    far = "out-of-domain" if measure in evidence.far and FAR not in name else ""
    return textwrap.fill(", ".join(filter(None, (name, far, named.how))), TITLE_WIDTH, break_on_hyphens=False)


def y_label(evidence: Evidence, measure: str, *, quantity: str = "accuracy") -> str:
    """Return the label of a y axis of scores on a measure, in percent, such as "10-shot accuracy [%]". `quantity`:
    "accuracy" or "error"."""
    shown = evidence.scores["measure"].isin(evidence.parts(measure))
    tasks = {Measure.of_score(str(task)).task for task in evidence.scores.loc[shown, "task"].unique()}
    how = {UPSTREAM: "Test ", FINETUNE: "Fine-tuned ", "linear": "Linear-probe "}
    if evidence.shots:
        how[FEWSHOT] = f"{evidence.shots}-shot "
    return f"{how.get(tasks.pop(), '') if len(tasks) == 1 else ''}{quantity} [%]".capitalize()


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


def _what_is_shown(
    evidence: Evidence,
    measures: Sequence[str],
    rows: Sequence[dict[str, Any]],
    estimates: Sequence[Estimate],
    lines: Sequence[ModelPoints],
) -> list[str]:
    """Return the sentences of the caption on images, tasks, n, and the sources of noise that the intervals contain.
    `rows`: the figure's table; `estimates`: the scores behind it."""
    names = map(_set if evidence.published else measure_text, evidence.headline)
    average = f"The average is over {', '.join(names)}." if HEADLINE in measures else ""
    if evidence.published:
        quoted = f"Hollow: published points, quoted from {evidence.source}, nothing measured here."
        return [quoted, average, contents(estimates)]
    seeds = _span([e.num_seeds for e in estimates], "training seed")
    draws = _span([e.num_draws for e in estimates if e.num_draws], "few-shot sample" if evidence.shots else "sample")
    tests = []
    for measure in measures:
        if measure not in (HEADLINE, FAR):
            sizes = [int(r["test_images"]) for r in rows if r["measure"] == measure and "test_images" in r]
            tests.append(f"{measure_text(measure)} {min(sizes):,}" if sizes else measure_text(measure))
    upstream = sorted({f"{p.data} ({p.kind})" for line in lines for p in line.points})
    trained_on = [(p.data, p.num_images) for line in lines for p in line.points]
    return [
        f"Pre-training images: {', '.join(upstream)}.",
        f"{evidence.shots}-shot linear probe." if evidence.shots else "",
        average,
        f"n: {' × '.join(filter(None, (seeds, draws)))}; test images: {', '.join(tests)}.",
        contents(estimates, trained_on=trained_on),
        HOLLOW if any(row["kind"] == NOT_BEGUN for row in rows) else "",
        "Models share few-shot samples and test images: differences are surer than overlapping bars suggest.",
    ]


def _what_is_quoted(evidence: Evidence, measures: Sequence[str], lines: Sequence[ModelPoints]) -> list[str]:
    """Return a sentence, in a list, on the source of the published points `lines`, for the caption; an empty list if no
    panel shows any of them."""
    published = evidence.reference
    shown = [m for m in measures if counterpart(evidence, m)] if lines else []
    if published is None or not shown:
        return []
    average = f"in the average panel they are means over {', '.join(map(_set, published.headline))}: other tasks"
    text = f"Hollow, grey: published points ({published.source}), fine-tuned at full scale"
    return [f"{text}; {average}." if HEADLINE in shown else f"{text}."]


def _set(measure: str) -> str:
    """Return the name of a measure's data set as the tables of the ViT paper write it, without the size that images are
    stored at."""
    name = re.sub(r":\d+px", "", measure).rpartition(":")[2].replace("-", "")
    return SHORTER.get(name, name)


def _tuned(measure: str) -> bool:
    """Return whether networks are fine-tuned for a measure. A published accuracy after fine-tuning is not comparable
    with that of a probe."""
    return Measure.parse(measure).task == FINETUNE


def _span(values: Sequence[int], noun: str) -> str:
    if not values:
        return ""
    low, high = min(values), max(values)
    return plural(low, noun) if low == high else f"{low}–{high} {noun}s"
