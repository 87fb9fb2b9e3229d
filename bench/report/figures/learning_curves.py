"""Training loss against images seen: each run's trunk, and the cool-downs that branch from it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from matplotlib.lines import Line2D

from bench.analysis.evidence import Evidence, Series
from bench.core.formatting import count, plural
from bench.core.record import LearningCurve
from bench.report.figures import _panels, _style
from bench.report.figures._contract import Annotation, Drawing, NothingToDraw

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TITLE = "Learning curves"
DASH = (0, (3, 1.2))
Member = tuple[Series, list[tuple[str, LearningCurve]]]
MAX_MODELS = 6  # of a family, from the smallest to the largest


def draw(evidence: Evidence) -> Drawing:
    """A panel per family; darker lines are larger models; solid trunks, dashed cool-downs to zero rate."""
    everything = _curves(evidence)
    if not everything:
        raise NothingToDraw("the records hold no learning curves")
    chosen = {family: _spread(members) for family, members in everything.items()}
    shown, total = (sum(map(len, found.values())) for found in (chosen, everything))
    rows: list[dict[str, Any]] = []
    annotations: list[Annotation] = []
    with _style.context():
        figure, panels, legend = _panels.grid(len(chosen), legend_lines=min(shown + 2, 16))
        handles = []
        for axes, (family, members) in zip(panels, chosen.items(), strict=True):
            colour, _ = _style.look(family, chosen)
            for number, (series, curves) in enumerate(members):
                shade = _style.shade(colour, number, len(members))
                handles.append(Line2D([], [], color=shade, linewidth=1.8, label=series.label))
                _lines(axes, series, curves, shade, rows, annotations)
            axes.set_title(family)
            axes.set_xlabel("Images seen")
            axes.set_ylabel("Training loss [nats]")
        for axes in panels:  # one scale for all, so that families compare
            _style.plain_log_x(axes, [row["images_seen"] for row in rows])
            axes.set_ylim(min(0.0, *(row["loss"] for row in rows)), 1.03 * max(row["loss"] for row in rows))
        handles += [
            Line2D([], [], color="#555555", linewidth=1.2, label="trunk, constant rate"),
            Line2D([], [], color="#555555", linewidth=1.2, linestyle=DASH, label="cool-down"),
        ]
        _panels.place_legend(legend, handles)
    return Drawing(
        figure=figure,
        data=pd.DataFrame(rows),
        annotations=tuple(annotations),
        alt=f"{TITLE}: {plural(shown, 'model')}.",
        caption="Each point is the mean training loss since the point before, augmentation included: not an accuracy, "
        "and not comparable between recipes. Every seed is a line of its own; no interval is drawn."
        + (f" {plural(total - shown, 'more model')} not drawn." if total > shown else ""),
    )


def _curves(evidence: Evidence) -> dict[str, list[Member]]:
    """Series of the compute axis with the curves of their cells, by family."""
    records = {record.directory: record for record in evidence.records.records}
    found: dict[str, list[Member]] = {}
    for series in evidence.on_axis("compute"):
        names = evidence.cells.get(series.variant, ())
        curves = [(name, curve) for name in names if (curve := records[name].curve) is not None]
        if curves:
            found.setdefault(series.family, []).append((series, curves))
    return found


def _lines(
    axes: Axes,
    series: Series,
    curves: Sequence[tuple[str, LearningCurve]],
    shade: Any,
    rows: list[dict[str, Any]],
    annotations: list[Annotation],
) -> None:
    """The curves of one model: the first seed strong, the others thin."""
    for seed, (name, curve) in enumerate(curves):
        for horizon, images, losses in curve.parts():
            axes.plot(
                images,
                losses,
                color=shade,
                linestyle="-" if horizon is None else DASH,
                linewidth=1.2 if seed == 0 else 0.7,
                alpha=1.0 if seed == 0 else 0.6,
            )
            rows += [
                {
                    "series": series.label,
                    "family": series.family,
                    "cell": name,
                    "horizon": horizon,
                    "images_seen": x,
                    "loss": y,
                }
                for x, y in zip(images, losses, strict=True)
            ]
            what = "trunk" if horizon is None else f"cool-down at {count(horizon)} images"
            text = f"{series.label}\n{what}\nloss {losses[-1]:.3f} after {count(images[-1])} images"
            annotations.append(Annotation(axes=axes, x=images[-1], y=losses[-1], text=text, cells=(name,)))


def _spread(members: list[Member]) -> list[Member]:
    """At most `MAX_MODELS`, evenly from the first to the last."""
    if len(members) <= MAX_MODELS:
        return members
    return [members[round(place)] for place in np.linspace(0, len(members) - 1, MAX_MODELS)]
