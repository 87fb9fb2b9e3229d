"""Accuracy after pre-training on one upstream set or another, in the manner of the ViT paper's Figure 3."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from bench.analysis.evidence import HEADLINE, UPSTREAM, Evidence, Point, family_rank
from bench.core.formatting import short_count
from bench.report.figures import _panels, _style
from bench.report.figures._contract import Drawing, Mark, NothingToDraw
from bench.report.figures._marks import point_text
from bench.stats.intervals import contents

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TITLE = "Accuracy versus pre-training data set"
MAX_PANELS = 8


def draw(evidence: Evidence) -> Drawing:
    """One place per upstream set, small sets first; a mark per model at its longest run there. The range that several
    ResNets span is a band, as in the paper."""
    at = _longest(evidence)
    names = {model for model, data in at if sum(other == model for other, _ in at) > 1}
    points = {key: point for key, point in at.items() if key[0] in names}
    images = {data: max(p.num_images for (_, d), p in points.items() if d == data) for _, data in points}
    sets = sorted(images, key=lambda data: (images[data], data))
    if len(sets) < 2:
        raise NothingToDraw("no model was pre-trained on two or more data sets")
    measures = [m for m in _panels.panel_measures(evidence) if m != UPSTREAM
                and sum(evidence.estimate(p, m) is not None for p in points.values()) > 1][:MAX_PANELS]  # fmt: skip
    if not measures:
        raise NothingToDraw("no downstream score of the models that were pre-trained on several data sets")
    rows: list[dict[str, Any]] = []
    marks: list[Mark] = []
    with _style.context():
        figure, panels, legend = _panels.grid(len(measures), legend_lines=len(names) + 1)
        looks = _looks(points)
        for axes, measure in zip(panels, measures, strict=True):
            mine = _rows(evidence, points, measure)
            _panel(axes, mine, sets, looks, hollow=evidence.published)
            for row in mine:
                x = sets.index(row["upstream"]) + looks[row["model"]]["shift"]
                point = points[row["model"], row["upstream"]]
                text = point_text(evidence, point, measure, evidence.estimates(measure)[point.key], label=row["model"])
                cells = () if evidence.published else evidence.cells.get(point.variant, ())
                marks.append(Mark(axes=axes, x=x, y=100 * row["accuracy"], text=text, cells=cells))
            rows += mine
            title = _panels.title(evidence, measure, list(points.values()))
            axes.set_title(title, fontweight="bold" if measure == HEADLINE else "normal")
            axes.set_ylabel(_panels.y_label(evidence, measure))
            axes.set_xticks(range(len(sets)), [f"{data}\n{_style.tick_text(images[data])} images" for data in sets])
            axes.set_xlim(-0.5, len(sets) - 0.5)
        _legend(legend, looks, hollow=evidence.published)
    quoted = "Hollow: published points, nothing measured here. " if evidence.published else ""
    inside = contents(e for m in measures for p in points.values() if (e := evidence.estimate(p, m)))
    return Drawing(
        figure=figure, data=pd.DataFrame(rows), marks=tuple(marks),
        caption=f"{quoted}Each mark is a model's longest run on that set; faint lines join one model's sets, smallest "
        f"set first, and are not fits. {inside}",
        alt=f"{TITLE}: {len(names)} models on {len(sets)} sets.",
    )  # fmt: skip


def _rows(evidence: Evidence, points: dict[tuple[str, str], Point], measure: str) -> list[dict[str, Any]]:
    """Everything that one panel shows."""
    return [
        {"measure": measure, "kind": "published" if evidence.published else "trained", "model": model,
         "family": point.family, "upstream": data, "num_images": point.num_images, "images_seen": point.images_seen,
         "accuracy": e.value, "low": e.low, "high": e.high}
        for (model, data), point in points.items() if (e := evidence.estimate(point, measure)) is not None
    ]  # fmt: skip


def _longest(evidence: Evidence) -> dict[tuple[str, str], Point]:
    found: dict[tuple[str, str], Point] = {}
    for series in evidence.series:
        key = series.last.model, series.last.data
        if key not in found or (series.last.num_images, series.last.images_seen) > (
            found[key].num_images, found[key].images_seen
        ):  # fmt: skip
            found[key] = series.last
    return found


def _looks(points: dict[tuple[str, str], Point]) -> dict[str, dict[str, Any]]:
    """Colour and marker by family, dashes within it, size by parameters, a shift so that no mark hides another."""
    models = {model: point for (model, _), point in points.items()}
    order = sorted(models, key=lambda m: (family_rank(models[m].family), models[m].params, m))
    sizes = _style.marker_sizes([models[model].params for model in order])
    looks: dict[str, dict[str, Any]] = {}
    for number, (model, size) in enumerate(zip(order, sizes, strict=True)):
        family = models[model].family
        colour, marker = _style.look(family, [p.family for p in models.values()])
        shift = 0.36 * (number / max(1, len(order) - 1) - 0.5)
        rank = sum(look["family"] == family for look in looks.values())
        looks[model] = {
            "family": family, "dash": _style.DASHES[rank % len(_style.DASHES)], "colour": colour, "marker": marker,
            "size": size, "shift": shift, "params": models[model].params,
        }  # fmt: skip
    return looks


def _panel(axes: Axes, rows: list[dict[str, Any]], sets: list[str], looks: dict[str, Any], *, hollow: bool) -> None:
    for model, look in looks.items():
        mine = sorted((r for r in rows if r["model"] == model), key=lambda r: sets.index(r["upstream"]))
        x = [sets.index(r["upstream"]) + look["shift"] for r in mine]
        y = [100 * r["accuracy"] for r in mine]
        axes.plot(x, y, color=look["colour"], linestyle=look["dash"], linewidth=1.1, alpha=0.55, zorder=2)
        axes.vlines(x, [100 * r["low"] for r in mine], [100 * r["high"] for r in mine], colors=look["colour"],
                    linewidth=1.1, zorder=3)  # fmt: skip
        axes.plot(x, y, linestyle="", marker=look["marker"], markersize=look["size"], color=look["colour"],
                  markerfacecolor="white" if hollow else look["colour"],
                  markeredgecolor=look["colour"] if hollow else "white", zorder=4)  # fmt: skip
    resnets = {model for model, look in looks.items() if look["family"].lower().startswith(("resnet", "bit"))}
    if len(resnets) > 1:
        spans = [[100 * r["accuracy"] for r in rows if r["model"] in resnets and r["upstream"] == d] for d in sets]
        places = [n for n, span in enumerate(spans) if span]
        axes.fill_between(places, [min(spans[n]) for n in places], [max(spans[n]) for n in places], color="#D55E00",
                          alpha=0.12, linewidth=0, zorder=1)  # fmt: skip


def _legend(axes: Axes, looks: dict[str, dict[str, Any]], *, hollow: bool) -> None:
    handles: list[Any] = [
        Line2D([], [], color=look["colour"], marker=look["marker"], markersize=look["size"], linewidth=1.1,
               linestyle=look["dash"],
               markerfacecolor="white" if hollow else look["colour"],
               markeredgecolor=look["colour"] if hollow else "white",
               label=f"{model}, {short_count(look['params'])} params" if look["params"] == look["params"] else model)
        for model, look in looks.items()
    ]  # fmt: skip
    if sum(look["family"].lower().startswith(("resnet", "bit")) for look in looks.values()) > 1:
        handles.append(Patch(color="#D55E00", alpha=0.12, label="range of the ResNets"))
    _panels.place_legend(axes, handles)
