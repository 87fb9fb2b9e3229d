"""Means over the groups of a many-task benchmark as bars, in the manner of the ViT paper's Figure 2."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pandas as pd

from bench.analysis.comparison import longest
from bench.analysis.evidence import Evidence, Series
from bench.analysis.intervals import Estimate, contents
from bench.analysis.vtab import groups_of, means
from bench.analysis.words import join
from bench.plots import _style
from bench.plots._contract import Drawing, Mark, NothingToDraw
from bench.plots._marks import point_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TITLE = "Accuracy by group of tasks"
MAX_BARS = 10
FULL = {"natural": "Natural", "specialised": "Specialised", "structured": "Structured"}


def draw(evidence: Evidence) -> Drawing:
    """A panel for all tasks and one per group; a bar per model at its longest horizon, models with most compute."""
    groups = groups_of(evidence)
    if not groups:
        raise NothingToDraw("no task with groups (vtab) was scored")
    tasks = tuple(m for members in groups.values() for m in members)
    panels = {f"All ({len(tasks)} tasks)": tasks}
    panels |= {f"{FULL.get(g, g)} ({len(members)})": members for g, members in groups.items()}
    series = [s for s in longest(evidence, limit=MAX_BARS) if s.last.key in means(evidence, tasks)]
    if not series:
        raise NothingToDraw("no model has a score on every task")
    rows: list[dict[str, Any]] = []
    marks: list[Mark] = []
    found: list[Estimate] = []
    with _style.context():
        figure = _style.figure(height=4.6)
        for axes, (title, members) in zip(figure.subplots(1, len(panels)), panels.items(), strict=True):
            at = means(evidence, members)
            for place, s in enumerate(series):
                e = at[s.last.key]
                found.append(e)
                rows.append({"group": title, "series": s.label, "family": s.family, "tasks": len(members),
                             "accuracy": e.value, "low": e.low, "high": e.high, "seeds": e.num_seeds})  # fmt: skip
                text = point_text(evidence, s.last, title, e, label=s.label)
                cells = () if evidence.published else evidence.cells.get(s.variant, ())
                marks.append(Mark(axes=axes, x=place, y=100 * e.value, text=text, cells=cells))
            _bars(axes, series, [at[s.last.key] for s in series], hatched=evidence.published)
            axes.set_title(title)
            axes.set_ylabel("Accuracy [%]" if len(rows) == len(series) else "")
    quoted = "Hatched: published, nothing measured here. " if evidence.published else ""
    return Drawing(
        figure=figure, data=pd.DataFrame(rows), marks=tuple(marks),
        caption=f"{quoted}Plain means over tasks: {join([f'{g} {len(m)}' for g, m in groups.items()])}. The axes do "
        f"not start at zero. {contents(found)}",
        alt=f"{TITLE}: {len(series)} models, {len(panels)} panels.",
    )  # fmt: skip


def _bars(axes: Axes, series: Sequence[Series], estimates: Sequence[Estimate], *, hatched: bool) -> None:
    """A bar with its interval per model; the axis starts below the lowest."""
    families = [s.family for s in series]
    for place, (s, e) in enumerate(zip(series, estimates, strict=True)):
        colour, _ = _style.look(s.family, families)
        axes.bar(place, 100 * e.value, width=0.72, color="white" if hatched else colour, edgecolor=colour,
                 linewidth=1.6, hatch="//" if hatched else None, zorder=2)  # fmt: skip
        axes.vlines(place, 100 * e.low, 100 * e.high, colors="#222222", linewidth=1.4, zorder=3)
    low, high = 100 * min(e.low for e in estimates), 100 * max(e.high for e in estimates)
    axes.set_ylim(max(0.0, low - 0.4 * (high - low) - 2), min(100.0, high + 0.1 * (high - low) + 1))
    axes.set_xticks(range(len(series)), [s.label for s in series], rotation=60, ha="right", rotation_mode="anchor")
    axes.grid(axis="x", visible=False)
