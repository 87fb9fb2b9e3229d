"""Figure of mean accuracies over the groups of a benchmark of many tasks, such as VTAB, as the ViT paper's Figure 2. It
draws points and no bars, whose lengths would mislead: the axes do not start at zero."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pandas as pd
import seaborn.objects as so

from bench.analysis.evidence import Evidence
from bench.analysis.vtab import groups_of, means
from bench.core.formatting import join
from bench.report.figures import _panels, _style
from bench.report.figures.figure import Drawing, Figure, NothingToDraw
from bench.report.tables import longest
from bench.stats.intervals import contents

TITLE = "Accuracy by group of tasks"
MAX_MODELS = 10
GROUP_NAMES = {"natural": "Natural", "specialised": "Specialised", "structured": "Structured"}


def draw(evidence: Evidence) -> Drawing:
    """Draw a panel for all tasks and one per group. Each has a point per model at its longest budget, for the
    `MAX_MODELS` models with most compute."""
    groups = groups_of(evidence)
    if not groups:
        raise NothingToDraw("no task with groups (vtab) was scored")
    tasks = tuple(m for members in groups.values() for m in members)
    panels = {f"All ({len(tasks)} tasks)": tasks}
    panels |= {f"{GROUP_NAMES.get(g, g)} ({len(members)})": members for g, members in groups.items()}
    series = [s for s in longest(evidence, limit=MAX_MODELS) if s.last.key in means(evidence, tasks)]
    if not series:
        raise NothingToDraw("no model has a score on every task")
    at = {title: means(evidence, members) for title, members in panels.items()}
    estimates = [at[title][s.last.key] for title in panels for s in series]
    rows: list[dict[str, Any]] = [
        {
            "group": title,
            "series": s.label,
            "family": s.family,
            "tasks": len(panels[title]),
            "accuracy": e.value,
            "low": e.low,
            "high": e.high,
            "seeds": e.num_seeds,
        }
        for (title, s), e in zip(((title, s) for title in panels for s in series), estimates, strict=True)
    ]
    families = list(dict.fromkeys(s.family for s in series))
    looks = {family: _style.look(family, families) for family in families}
    table = _panels.in_percent(pd.DataFrame(rows))
    with _style.context():
        columns = len(panels) if _style.columns(len(panels)) > 1 else 1
        figure = _style.figure(height=(0.3 * len(series) + 1.2) * len(panels) / columns)
        (
            so.Plot(table, x="accuracy_percent", y="series", xmin="low_percent", xmax="high_percent", color="family")
            .facet(col="group", order=list(panels), wrap=columns)
            .scale(
                color=so.Nominal({family: colour for family, (colour, _) in looks.items()}),
                marker=so.Nominal({family: marker for family, (_, marker) in looks.items()}),
                y=so.Nominal(order=[s.label for s in series]),
            )
            .add(so.Range(linewidth=1.4), orient="y", legend=False)
            .add(so.Dot(pointsize=7.5, fill=not evidence.published, stroke=1.3), marker="family", legend=False)
            .label(x="Accuracy [%]", y="")
            .theme(_style.theme())
            .on(figure)
            .plot()
        )
        for axes, title in zip(figure.axes, panels, strict=True):
            axes.set_title("")
            axes.set_title(title, loc="left")
            axes.grid(axis="y", visible=False)
        _style.legend(figure, _style.family_handles(families, hollow=evidence.published))
    places = {s.label: (place, s.last) for place, s in enumerate(series)}
    axes_of = dict(zip(panels, figure.axes, strict=True))
    annotations = [
        replace(
            _panels.annotation(
                evidence, axes_of[row["group"]], places[row["series"]][1], row["group"], e, label=row["series"], x=0.0
            ),
            x=100 * e.value,
            y=places[row["series"]][0],
        )
        for row, e in zip(rows, estimates, strict=True)
    ]
    quoted = "Hollow: published, nothing measured here. " if evidence.published else ""
    return Drawing(
        figure=figure,
        data=pd.DataFrame(rows),
        annotations=tuple(annotations),
        caption=f"{quoted}Plain means over tasks: {join([f'{g} {len(m)}' for g, m in groups.items()])}. "
        f"{contents(estimates)}",
        alt=f"{TITLE}: {len(series)} models, {len(panels)} panels.",
    )


FIGURE = Figure(title=TITLE, draw=draw)
