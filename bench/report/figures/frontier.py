"""Figure of the best accuracy of each family within a compute budget, which answers "which family, for how much
compute"."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import seaborn as sns

from bench.analysis.budgets import ONE_BUDGET
from bench.analysis.evidence import HEADLINE, UPSTREAM, Evidence, Point, Series, family_rank
from bench.analysis.frontiers import best_within
from bench.core.by_key import by_key
from bench.core.formatting import common_flop_unit, join
from bench.core.measure import Measure
from bench.report.figures import _panels, _style
from bench.report.figures.compute import counted
from bench.report.figures.figure import Drawing, Figure, NothingToDraw
from bench.stats.intervals import Estimate, contents

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TITLE = "Best accuracy within a compute budget"
TITLE_LINE_LETTERS = 66  # letters of a line of the title
LINE_POINTS = 80  # points of a family's line, besides those at its budgets
ROUNDING = 1e-8  # rounding error of the values of a line
Scored = tuple[Point, str, Estimate]  # a point, the name of its series, its score


def draw(evidence: Evidence) -> Drawing:
    """Draw one panel: for each family a line through its best points, with their intervals, and all other points
    faintly."""
    sides = by_key((series.family, series) for series in evidence.on_axis("compute", every=True))
    scored_by = by_key(
        (family, (p, series.label, e))
        for family, members in sides.items()
        for series in members
        for p in series.points
        if p.train_flops > 0 and (e := evidence.estimate(p, HEADLINE)) is not None
    )
    families = sorted(scored_by, key=family_rank)
    if not families or not evidence.headline:
        raise NothingToDraw("no headline score at a known compute")
    flops = [p.train_flops for family in families for p, _, _ in scored_by[family]]
    scale, unit = common_flop_unit(flops)
    sets = join(sorted({p.data for points in scored_by.values() for p, _, _ in points}))
    shown = {UPSTREAM: "its test images"}  # in place of the measure's name
    tasks = join([shown.get(m, Measure.parse(m).data if evidence.published else m) for m in evidence.headline])
    rows: list[dict[str, Any]] = []
    explained: list[tuple[Point, str, Estimate, float]] = []
    lines: dict[str, list[tuple[float, float]]] = {}
    for family in families:
        points = sorted(scored_by[family], key=lambda scored: scored[0].train_flops)
        begun = evidence.begun(sides[family])
        lines[family] = _line(evidence, begun, [p.train_flops for s in begun for p in s.points if p.train_flops > 0])
        best = _best(evidence, points, dict(lines[family]))
        rows += [
            {
                "family": family,
                "series": label,
                f"compute_{unit}s": p.train_flops / scale,
                "accuracy": e.value,
                "low": e.low,
                "high": e.high,
                "best": number in best,
                "begun": p.key not in evidence.not_begun,
            }
            for number, (p, label, e) in enumerate(points)
        ]
        explained += [(p, label, e, p.train_flops / scale) for p, label, e in points]
    table = pd.DataFrame(rows)
    with _style.context():
        figure = _style.figure(columns=1)
        axes = figure.subplots()
        x = f"compute_{unit}s"
        _draw_points(axes, _panels.in_percent(table), x, families, hollow=evidence.published)
        steps = []
        for family, mine in table.groupby("family", sort=False):
            path = [(at / scale, 100 * value) for at, value in lines[str(family)]]
            if path:
                steps.append(_draw_line(axes, mine[mine["best"]], x, path, str(family), families))
        best = _panels.in_percent(table[table["best"]] if table["best"].any() else table)  # all may be hollow
        limits = _style.percent_range(best["low_percent"], 100 * table["accuracy"], best["high_percent"])
        limits = min(limits[0], 100 * table["accuracy"].min() - 1.0), limits[1]  # hollow points lie below the others
        axes.set_ylim(*np.round(limits, 6))  # further digits differ between processors, and with them soft edges
        _style.plain_log_x(axes, list(table[x]), room=0.14)
        pixels = evidence.estimate(evidence.pixels, HEADLINE)
        if pixels is not None:
            axes.axhline(100 * pixels.value, **_style.PIXELS, zorder=1)
            _name_pixels(axes, table, 100 * pixels.value)
        axes.set(xlabel=f"Pre-training compute [{unit}s]", ylabel=_panels.y_label(evidence, HEADLINE))
        axes.set_title(
            fill(f"Pre-trained on {sets}, evaluated on {tasks}", TITLE_LINE_LETTERS),
            loc="left",
            fontsize=_style.text(9.5),
        )
        dots = [list(zip(mine[x], 100 * mine["accuracy"], strict=True)) for _, mine in table.groupby("family")]
        paths = [path for _, drawn in steps for path in drawn]
        if steps:
            _style.name_ends(axes, [end for end, _ in steps])
        if (beaten := ~table["best"] & table["begun"]).any():
            pale = table.loc[table.loc[beaten, "accuracy"].idxmin()]
            said = (pale[x], 100 * pale["accuracy"], "pale: beaten within\nits own family", _style.GREY)
            _style.name_points(axes, [said], curves=[*dots, *paths])
    annotations = tuple(
        _panels.annotation(evidence, axes, p, HEADLINE, e, label=label, x=at) for p, label, e, at in explained
    )
    return Drawing(
        figure=figure,
        data=table,
        annotations=annotations,
        caption=(
            "Published points, nothing measured here." if evidence.published else "",
            "Lines join the best model of each family at each budget (budgets within "
            f"{ONE_BUDGET - 1:.0%} are merged), and go on level from a run that ended below, as they do not in "
            "comparisons at equal compute. Pale points were beaten by another model of their family.",
            "" if table["begun"].all() else _panels.HOLLOW,
            f"{'Mean over' if len(evidence.headline) > 1 else 'Task:'} {tasks}.",
            contents(e for points in scored_by.values() for _, _, e in points),
            counted(evidence),
        ),
        alt=f"{TITLE}: one line for each of {', '.join(families)}.",
    )


def _name_pixels(axes: Axes, table: pd.DataFrame, height: float) -> None:
    """Write "pixel baseline" on the line of raw pixels, which is at `height` percent: at its left or right end,
    whichever is farther from the best points there."""
    best = (table[table["best"]] if table["best"].any() else table).groupby("family")["accuracy"]
    left, right = (min(abs(100 * ends - height)) for ends in (best.first(), best.last()))
    axes.annotate(
        "pixel baseline",
        (0 if left > right else 1, height),
        xycoords=("axes fraction", "data"),
        xytext=(4 if left > right else -4, 2),
        textcoords="offset points",
        ha="left" if left > right else "right",
        fontsize=_style.text(_style.LABEL_SIZE),
        color=_style.INK,
    )


def _best(evidence: Evidence, points: list[Scored], line: Mapping[float, float]) -> list[int]:
    """Return the indices of a family's points than which no other model of the family is better within the same
    compute. `line`: compute in FLOP -> accuracy of the family's best model within it."""
    begun = [(n, p, e) for n, (p, _, e) in enumerate(points) if p.key not in evidence.not_begun]
    return [number for number, p, e in begun if e.value >= line[p.train_flops] - ROUNDING]


def _draw_points(axes: Axes, table: pd.DataFrame, x: str, families: Sequence[str], *, hollow: bool) -> None:
    """Draw the points of all families: large if they are the best of their family within their compute, else small and
    faint, and hollow if the network has not begun to learn.

    Args:
        x: name of the table's column of compute.
        hollow: whether best points are drawn hollow, because they are published.
    """
    looks = {family: _style.look(family, families) for family in families}
    dull = table[~table["begun"]]
    for family, mine in dull.groupby("family", sort=False):
        colour, marker = looks[str(family)]
        axes.scatter(mine[x], mine["accuracy_percent"], s=30, marker=marker, c="none", edgecolors=colour, zorder=2)
    table = table[table["begun"]]
    for best, size, alpha in ((False, 22, 0.3), (True, 64, 1.0)):
        if best not in set(table["best"]):
            continue
        sns.scatterplot(
            table[table["best"] == best],
            x=x,
            y="accuracy_percent",
            hue="family",
            style="family",
            palette={family: "white" if hollow and best else colour for family, (colour, _) in looks.items()},
            markers={family: marker for family, (_, marker) in looks.items()},
            edgecolor=[looks[f][0] for f in table.loc[table["best"] == best, "family"]] if hollow and best else "white",
            s=size,
            alpha=alpha,
            linewidth=1.3 if hollow and best else 0.6,
            legend=False,
            zorder=4 if best else 2,
            ax=axes,
        )


def _line(evidence: Evidence, side: Sequence[Series], flops: Sequence[float]) -> list[tuple[float, float]]:
    """Return (compute in FLOP, accuracy) along the line of a family's best model within each compute: at and just below
    each of `flops`, and between them. `side`: the family's models."""
    if not len(flops):
        return []
    at_X = np.unique([*np.geomspace(min(flops), max(flops), LINE_POINTS), *flops, *(0.999 * x for x in flops)])
    known = ((float(x), best_within(evidence, side, HEADLINE, float(x))) for x in at_X[at_X >= min(flops)])
    return [(x, round(value, 9)) for x, value in known if value is not None]  # further digits differ between processors


def _draw_line(
    axes: Axes,
    best: pd.DataFrame,
    x: str,
    path: list[tuple[float, float]],
    family: str,
    families: Sequence[str],
) -> tuple[tuple[float, float, str, str], list[list[tuple[float, float]]]]:
    """Draw the line of a family, `path`, and the intervals of its best points. Return (x, y, family, colour) of the
    line's end; and all lines drawn, as lists of points."""
    colour, _ = _style.look(family, families)
    at, line = zip(*path, strict=True)
    low, high = (100 * best[name] for name in ("low", "high"))
    axes.vlines(best[x], low, high, colors=colour, linewidth=1.4, alpha=0.6, zorder=2.5)
    sns.lineplot(x=at, y=line, color=colour, linewidth=2.2, zorder=3, estimator=None, sort=False, ax=axes)
    intervals = [[(place, a), (place, b)] for place, a, b in zip(best[x], low, high, strict=True)]
    return (at[-1], line[-1], family, colour), [path, *intervals]


FIGURE = Figure(title=TITLE, draw=draw)
