"""The best accuracy of each family within a compute budget: the answer to "which family, for how much compute"."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.lines import Line2D

from bench.analysis.budgets import ONE_BUDGET, budgets
from bench.analysis.evidence import HEADLINE, Evidence, Point, family_rank
from bench.core.formatting import flop_unit
from bench.report.figures import _panels, _style
from bench.report.figures._contract import Annotation, Drawing, NothingToDraw
from bench.report.figures.compute import counted
from bench.stats.crossing import pareto
from bench.stats.intervals import Estimate, contents

TITLE = "Best accuracy within a compute budget"
SIZE = 6.4, 4.6  # inches: text is legible on a phone, beside a table and in a README
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
    annotations: list[Annotation] = []
    with _style.context():
        figure = _style.figure(width=SIZE[0], height=SIZE[1])
        axes = figure.subplots()
        for family in families:
            points = sorted(found[family], key=lambda scored: scored[0].train_flops)
            best = _best(points)
            _family(axes, points, best, scale, _style.look(family, families), hollow=evidence.published)
            for number, (p, label, e) in enumerate(points):
                x = p.train_flops / scale
                annotations.append(_panels.annotation(evidence, axes, p, HEADLINE, e, label=label, x=x))
                rows.append(
                    {
                        "family": family,
                        "series": label,
                        f"compute_{unit}s": x,
                        "accuracy": e.value,
                        "low": e.low,
                        "high": e.high,
                        "best": number in best,
                    }
                )
        pixels = evidence.estimate(evidence.pixels, HEADLINE)
        if pixels is not None:
            axes.axhline(100 * pixels.value, **_style.PIXELS, zorder=1)
        _style.plain_log_x(axes, [x / scale for x in flops])
        axes.set_xlabel(f"Pre-training compute [{unit}s]")
        axes.set_ylabel(_panels.y_label(evidence, HEADLINE))
        axes.legend(
            handles=_handles(families, evidence, pixels=pixels is not None),
            loc="lower right",
            frameon=True,
            framealpha=0.85,
            edgecolor="none",
        )
    tasks = ", ".join(part.rpartition(":")[2] if evidence.published else part for part in evidence.headline)
    quoted = "Published points, nothing measured here. " if evidence.published else ""
    return Drawing(
        figure=figure,
        data=pd.DataFrame(rows),
        annotations=tuple(annotations),
        caption=(
            f"{quoted}Lines: the best model of each family at or below that compute, as scored, from one better point "
            f"to the next (budgets within {ONE_BUDGET - 1:.0%} are one); faint: its other points. "
            f"{'Mean over' if len(evidence.headline) > 1 else 'Task:'} {tasks}. "
            f"{contents(e for points in found.values() for _, _, e in points)} {counted(evidence)}"
        ),
        alt=f"{TITLE}: one line for each of {', '.join(families)}.",
    )


def _best(points: list[Scored]) -> list[int]:
    """Numbers of the points, in order of compute, that no point of the same budget or a smaller one beats."""
    return pareto(budgets([p.train_flops for p, _, _ in points]).tolist(), [-e.value for _, _, e in points])


def _family(
    axes: Any, points: list[Scored], best: list[int], scale: float, look: tuple[str, str], *, hollow: bool
) -> None:
    colour, marker = look
    x = [p.train_flops / scale for p, _, _ in points]
    y, low, high = (np.array([100 * getattr(e, name) for _, _, e in points]) for name in ("value", "low", "high"))
    axes.plot(x, y, linestyle="", marker=marker, markersize=4.5, color=colour, alpha=0.3, markeredgewidth=0, zorder=2)
    places = [x[n] for n in best] + [x[-1]] * (best[-1] != len(points) - 1)  # the best stays the best
    line, below, above = (
        [values[n] for n in best] + [values[best[-1]]] * (len(places) - len(best)) for values in (y, low, high)
    )
    axes.fill_between(places, below, above, step="post", color=colour, alpha=0.13, linewidth=0, zorder=1.5)
    axes.vlines(places[-1], below[-1], above[-1], colors=colour, linewidth=1.4, zorder=2.5)  # a step without width
    axes.plot(places, line, drawstyle="steps-post", color=colour, linewidth=2.2, zorder=3)
    axes.plot(
        places[: len(best)],
        line[: len(best)],
        linestyle="",
        marker=marker,
        markersize=8,
        zorder=4,
        color=colour,
        **_style.faces(colour, hollow=hollow),
    )


def _handles(families: list[str], evidence: Evidence, *, pixels: bool) -> list[Line2D]:
    handles = [
        _style.family_handle(family, families, hollow=evidence.published, linewidth=2.2, markersize=8)
        for family in families
    ]
    return [*handles, Line2D([], [], **_style.PIXELS, label="raw pixels")] if pixels else handles
