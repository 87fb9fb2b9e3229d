"""Figure of the accuracy of adapted models against the number of labelled images. Each model is adapted in the way that
suits it best."""

from __future__ import annotations

from typing import Any

import pandas as pd
import seaborn.objects as so

from bench.analysis.adaptation import TUNED, Adapted, adapted, best_of_models, metrics, probes
from bench.analysis.evidence import Evidence
from bench.core.formatting import count, percent
from bench.core.metrics import ACCURACY, METRICS
from bench.report.figures import _style
from bench.report.figures.figure import Annotation, Drawing, Figure, NothingToDraw
from bench.stats.intervals import contents

TITLE = "Accuracy versus number of labelled images"
MAX_MODELS = 8


def draw(evidence: Evidence) -> Drawing:
    """Draw accuracy against the number of labelled images: a panel per data set, with a line per model."""
    metric = (metrics(evidence) or [ACCURACY])[0]
    every = adapted(evidence, metric)
    best = best_of_models(probes(every))
    panels = list(dict.fromkeys(one.data for one in best))
    chosen = [one for data in panels for one in [o for o in best if o.data == data][:MAX_MODELS]]
    if not chosen:
        raise NothingToDraw("no model was adapted")
    models = list(dict.fromkeys(one.model for one in chosen))
    tuned = [one for one in every if one.way == TUNED and one.model in models]
    looks = dict(zip(models, (_style.LOOKS * 2)[: len(models)], strict=True))
    table = pd.DataFrame([row for one in (*chosen, *tuned) for row in _rows(one)])
    curves, points = table[table["way"] != TUNED], table[table["way"] == TUNED]
    with _style.context():
        columns = _style.columns(len(panels))
        lines = -(-len(panels) // columns)
        figure = _style.figure(columns=len(panels), height=_style.current().single[1] * lines)
        (
            so.Plot(curves, x="images", y="accuracy_percent", color="model", marker="model")
            .facet(col="data", order=panels, wrap=columns)
            .add(so.Band(alpha=0.1), ymin="low_percent", ymax="high_percent", marker=None, legend=False)
            .add(so.Line(linewidth=1.6), marker=None, legend=False)
            .add(so.Dot(pointsize=6, stroke=0.8, edgecolor="white"), legend=False)
            .scale(
                color=so.Nominal({name: colour for name, (colour, _) in looks.items()}),
                marker=so.Nominal({name: marker for name, (_, marker) in looks.items()}),
            )
            .label(x="Labelled images", y=f"Test {METRICS[metric]} [%]")
            .theme(_style.theme())
            .on(figure)
            .plot()
        )
        for axes, data in zip(figure.axes, panels, strict=True):
            mine = curves[curves["data"] == data]
            axes.set_title("")
            axes.set_title(data if len(panels) > 1 else "", loc="left")
            _style.plain_log_x(axes, list(mine["images"]), text=count, room=0.25 * min(2, len(panels)))
            ends = [rows.iloc[-1] for _, rows in mine.groupby("model", sort=False)]
            named = [(end["images"], end["accuracy_percent"], end["model"], looks[end["model"]][0]) for end in ends]
            for point in points[points["data"] == data].to_dict("records"):
                (colour, marker), at = looks[point["model"]], [point["images"]]
                axes.plot(at * 2, [point["low_percent"], point["high_percent"]], color=colour, linewidth=1, zorder=5)
                axes.plot(at, [point["accuracy_percent"]], marker, color=colour, mfc="white", ms=9, mew=1.6, zorder=6)
                named.append((point["images"], point["accuracy_percent"], "fine-tuned", colour))
            _style.name_points(
                axes,
                named,
                curves=[list(zip(r["images"], r["accuracy_percent"], strict=True)) for _, r in mine.groupby("model")],
            )
    axes_of = dict(zip(panels, figure.axes, strict=True))
    notes = tuple(
        _annotation(axes_of[one.data], one, i, evidence) for one in (*chosen, *tuned) for i in range(len(one.images))
    )
    estimates = [e for one in (*chosen, *tuned) for e in one.estimates]
    ways = "; ".join(dict.fromkeys(one.name for one in chosen))
    unvalidated = any(one.validation is None for one in chosen)
    return Drawing(
        figure=figure,
        data=table.drop(columns=["accuracy_percent", "low_percent", "high_percent"]),
        annotations=notes,
        caption=(
            f"Each model in the way that is best by cross-validation within all labelled images: {ways}."
            + " Where that cannot be done, by the test images." * unvalidated,
            f"Labelled images are nested and the same for all models. {contents(estimates)}",
            *(["Open marks: the whole network fine-tuned on all of them."] if tuned else []),
        ),
        alt=f"{TITLE}: {len(models)} models.",
    )


def _rows(one: Adapted) -> list[dict[str, Any]]:
    return [
        {
            "data": one.data,
            "model": one.model,
            "way": one.way,
            "images": images,
            "accuracy": e.value,
            "low": e.low,
            "high": e.high,
            "accuracy_percent": 100 * e.value,
            "low_percent": 100 * e.low,
            "high_percent": 100 * e.high,
        }
        for images, e in zip(one.images, one.estimates, strict=True)
    ]


def _annotation(axes: Any, one: Adapted, i: int, evidence: Evidence) -> Annotation:
    e = one.estimates[i]
    accuracy = f"{percent(e.value)} % [{percent(e.low)}, {percent(e.high)}]"
    text = f"{one.name}\n{count(one.images[i])} labelled images\n{accuracy}"
    return Annotation(axes=axes, x=one.images[i], y=100 * e.value, text=text, cells=evidence.cells[one.point.variant])


FIGURE = Figure(title=TITLE, draw=draw)
