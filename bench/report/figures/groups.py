"""Means over the groups of a many-task benchmark, as the ViT paper's Figure 2 has them: points, since the axes do not
start at zero and the length of a bar would mislead."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pandas as pd

from bench.analysis.evidence import Evidence, Series
from bench.analysis.vtab import groups_of, means
from bench.core.formatting import join
from bench.report.figures import _panels, _style
from bench.report.figures._contract import Annotation, Drawing, NothingToDraw
from bench.report.tables import longest
from bench.stats.intervals import Estimate, contents

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TITLE = "Accuracy by group of tasks"
MAX_MODELS = 10
FULL = {"natural": "Natural", "specialised": "Specialised", "structured": "Structured"}


def draw(evidence: Evidence) -> Drawing:
    """A panel for all tasks and one per group; a point per model at its longest horizon, models with most compute."""
    groups = groups_of(evidence)
    if not groups:
        raise NothingToDraw("no task with groups (vtab) was scored")
    tasks = tuple(m for members in groups.values() for m in members)
    panels = {f"All ({len(tasks)} tasks)": tasks}
    panels |= {f"{FULL.get(g, g)} ({len(members)})": members for g, members in groups.items()}
    series = [s for s in longest(evidence, limit=MAX_MODELS) if s.last.key in means(evidence, tasks)]
    if not series:
        raise NothingToDraw("no model has a score on every task")
    rows: list[dict[str, Any]] = []
    annotations: list[Annotation] = []
    found: list[Estimate] = []
    with _style.context():
        figure = _style.figure(height=4.6)
        for axes, (title, members) in zip(figure.subplots(1, len(panels)), panels.items(), strict=True):
            at = means(evidence, members)
            for place, s in enumerate(series):
                e = at[s.last.key]
                found.append(e)
                rows.append(
                    {
                        "group": title,
                        "series": s.label,
                        "family": s.family,
                        "tasks": len(members),
                        "accuracy": e.value,
                        "low": e.low,
                        "high": e.high,
                        "seeds": e.num_seeds,
                    }
                )
                annotations.append(_panels.annotation(evidence, axes, s.last, title, e, label=s.label, x=place))
            _points(axes, series, [at[s.last.key] for s in series], hollow=evidence.published)
            axes.set_title(title)
            axes.set_ylabel("Accuracy [%]" if len(rows) == len(series) else "")
    quoted = "Hollow: published, nothing measured here. " if evidence.published else ""
    return Drawing(
        figure=figure,
        data=pd.DataFrame(rows),
        annotations=tuple(annotations),
        caption=f"{quoted}Plain means over tasks: {join([f'{g} {len(m)}' for g, m in groups.items()])}. Each "
        f"panel has its own range of accuracies. {contents(found)}",
        alt=f"{TITLE}: {len(series)} models, {len(panels)} panels.",
    )


def _points(axes: Axes, series: Sequence[Series], estimates: Sequence[Estimate], *, hollow: bool) -> None:
    """A point with its interval per model."""
    families = [s.family for s in series]
    for place, (s, e) in enumerate(zip(series, estimates, strict=True)):
        colour, marker = _style.look(s.family, families)
        axes.vlines(place, 100 * e.low, 100 * e.high, colors=colour, linewidth=1.4, zorder=2)
        axes.plot(
            place,
            100 * e.value,
            linestyle="",
            marker=marker,
            markersize=9,
            color=colour,
            zorder=3,
            **_style.faces(colour, hollow=hollow),
        )
    low, high = 100 * min(e.low for e in estimates), 100 * max(e.high for e in estimates)
    margin = 0.08 * (high - low) + 0.5
    axes.set_ylim(max(0.0, low - margin), min(100.5, high + margin))
    axes.set_xlim(-0.6, len(series) - 0.4)
    axes.set_xticks(range(len(series)), [s.label for s in series], rotation=60, ha="right", rotation_mode="anchor")
    axes.grid(axis="x", visible=False)
