"""The best accuracy of each family within a compute budget: the answer to "which family, for how much compute"."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import seaborn as sns

from bench.analysis.budgets import ONE_BUDGET, budgets
from bench.analysis.evidence import HEADLINE, Evidence, Point, family_rank
from bench.core.formatting import flop_unit
from bench.report.figures import _panels, _style
from bench.report.figures.compute import counted
from bench.report.figures.figure import Drawing, Figure, NothingToDraw
from bench.stats.crossing import pareto
from bench.stats.intervals import Estimate, contents

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TITLE = "Best accuracy within a compute budget"
Scored = tuple[Point, str, Estimate]  # with the name of its series


def draw(evidence: Evidence) -> Drawing:
    """One panel: per family a step at each of its best points, with their intervals; every other point faint."""
    found: dict[str, list[Scored]] = {}
    for series in evidence.on_axis("compute"):
        scored = [
            (p, series.label, e)
            for p in series.points
            if p.train_flops > 0 and (e := evidence.estimate(p, HEADLINE)) is not None
        ]
        found.setdefault(series.family, []).extend(scored)
    families = sorted((family for family, points in found.items() if points), key=family_rank)
    if not families or not evidence.headline:
        raise NothingToDraw("no headline score at a known compute")
    flops = [p.train_flops for family in families for p, _, _ in found[family]]
    scale, unit = flop_unit((min(flops) * max(flops)) ** 0.5)
    rows: list[dict[str, Any]] = []
    explained: list[tuple[Point, str, Estimate, float]] = []
    for family in families:
        points = sorted(found[family], key=lambda scored: scored[0].train_flops)
        best = _best(points)
        rows += [
            {
                "family": family,
                "series": label,
                f"compute_{unit}s": p.train_flops / scale,
                "accuracy": e.value,
                "low": e.low,
                "high": e.high,
                "best": number in best,
            }
            for number, (p, label, e) in enumerate(points)
        ]
        explained += [(p, label, e, p.train_flops / scale) for p, label, e in points]
    table = pd.DataFrame(rows)
    with _style.context():
        figure = _style.figure(width=_style.current().single[0], height=_style.current().single[1])
        axes = figure.subplots()
        x = f"compute_{unit}s"
        _draw_points(axes, _panels.in_percent(table), x, families, hollow=evidence.published)
        steps = [
            _draw_steps(axes, mine, x, str(family), families) for family, mine in table.groupby("family", sort=False)
        ]
        best = _panels.in_percent(table[table["best"]])
        axes.set_ylim(*_style.percent_range(best["low_percent"], 100 * table["accuracy"], best["high_percent"]))
        _style.plain_log_x(axes, list(table[x]), room=0.14)
        pixels = evidence.estimate(evidence.pixels, HEADLINE)
        if pixels is not None:
            axes.axhline(100 * pixels.value, **_style.PIXELS, zorder=1)
            _name_pixels(axes, table, 100 * pixels.value)
        axes.set(xlabel=f"Pre-training compute [{unit}s]", ylabel=_panels.y_label(evidence, HEADLINE))
        dots = [list(zip(mine[x], 100 * mine["accuracy"], strict=True)) for _, mine in table.groupby("family")]
        paths = [path for _, drawn in steps for path in drawn]
        _style.name_points(axes, [end for end, _ in steps], curves=[*dots, *paths], size=10.5)
    annotations = tuple(
        _panels.annotation(evidence, axes, p, HEADLINE, e, label=label, x=at) for p, label, e, at in explained
    )
    tasks = ", ".join(part.rpartition(":")[2] if evidence.published else part for part in evidence.headline)
    return Drawing(
        figure=figure,
        data=table,
        annotations=annotations,
        caption=(
            "Published points, nothing measured here." if evidence.published else "",
            "Lines: the best model of each family at or below that compute, as scored, from one better point to the "
            f"next (budgets within {ONE_BUDGET - 1:.0%} are one); faint: its other points.",
            f"{'Mean over' if len(evidence.headline) > 1 else 'Task:'} {tasks}.",
            contents(e for points in found.values() for _, _, e in points),
            counted(evidence),
        ),
        alt=f"{TITLE}: one line for each of {', '.join(families)}.",
    )


def _name_pixels(axes: Axes, table: pd.DataFrame, height: float) -> None:
    """Name the line of raw pixels at the end that is farther from the families' first, or last, best points."""
    best = table[table["best"]].groupby("family")["accuracy"]
    left, right = (min(abs(100 * ends - height)) for ends in (best.first(), best.last()))
    axes.annotate(
        "raw pixels",
        (0 if left > right else 1, height),
        xycoords=("axes fraction", "data"),
        xytext=(4 if left > right else -4, 2),
        textcoords="offset points",
        ha="left" if left > right else "right",
        fontsize=_style.current().text(_style.LABEL_SIZE),
        color=_style.INK,
    )


def _best(points: list[Scored]) -> list[int]:
    """Numbers of the points, in order of compute, that no point of the same budget or a smaller one beats."""
    return pareto(budgets([p.train_flops for p, _, _ in points]).tolist(), [-e.value for _, _, e in points])


def _draw_points(axes: Axes, table: pd.DataFrame, x: str, families: Sequence[str], *, hollow: bool) -> None:
    """Every point; faint where another of its family is better within its budget."""
    looks = {family: _style.look(family, families) for family in families}
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


def _draw_steps(
    axes: Axes, table: pd.DataFrame, x: str, family: str, families: Sequence[str]
) -> tuple[tuple[float, float, str, str], list[list[tuple[float, float]]]]:
    """The best within each budget, as a step with its interval, up to the largest budget of the family: the best stays
    the best. Returns where it ends, the family's name and its colour; and the lines that it consists of."""
    colour, _ = _style.look(family, families)
    steps = table[table["best"]]
    steps = pd.concat([steps, steps.tail(1).assign(**{x: table[x].max()})])
    at, line, low, high = steps[x], *(100 * steps[name] for name in ("accuracy", "low", "high"))
    axes.fill_between(at, low, high, step="post", color=colour, alpha=0.13, linewidth=0, zorder=1.5)
    axes.vlines(at.iloc[-1], low.iloc[-1], high.iloc[-1], colors=colour, linewidth=1.4, zorder=2.5)
    sns.lineplot(
        x=at, y=line, color=colour, drawstyle="steps-post", linewidth=2.2, zorder=3, estimator=None, sort=False, ax=axes
    )
    end = float(at.iloc[-1])
    path = list(zip(np.repeat(at, 2)[1:], np.repeat(line, 2)[:-1], strict=True))
    interval = [(end, float(low.iloc[-1])), (end, float(high.iloc[-1]))]
    return (end, float(line.iloc[-1]), family, colour), [path, interval]


FIGURE = Figure(title=TITLE, draw=draw)
