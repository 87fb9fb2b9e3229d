"""Figure of accuracy after pre-training on one upstream set or another, in the manner of the ViT paper's Figure 3."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from bench.analysis.evidence import UPSTREAM, Evidence, Point, family_rank
from bench.analysis.families import RESNET, kind_of
from bench.core.by_key import by_key
from bench.report.figures import _panels, _style
from bench.report.figures.figure import Drawing, Figure, NothingToDraw

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TITLE = "Accuracy versus pre-training data set"
MAX_PANELS = 8
BAND_OPACITY = 0.12


def draw(evidence: Evidence) -> Drawing:
    """Draw accuracy by upstream set, small sets first, with one point per model at its longest run on each set. If
    there are several ResNets, a band shows their range, as in the ViT paper."""
    longest = _longest(evidence)
    several = {model for model, _ in longest if sum(other == model for other, _ in longest) > 1}
    points = {key: point for key, point in longest.items() if key[0] in several}
    images = {data: max(p.num_images for (_, d), p in points.items() if d == data) for _, data in points}
    sets = sorted(images, key=lambda data: (images[data], data))
    if len(sets) < 2:
        raise NothingToDraw("no model was pre-trained on two or more data sets")
    measures = [
        m
        for m in _panels.measures_of(evidence)
        if m != UPSTREAM and sum(evidence.estimate(p, m) is not None for p in points.values()) > 1
    ][:MAX_PANELS]
    if not measures:
        raise NothingToDraw("no downstream score of the models that were pre-trained on several data sets")
    lines = _lines(points, sets)
    quoted = _longest(evidence.reference) if evidence.reference else {}
    resnets = [line for line in lines if kind_of(line.family) == RESNET]
    drawing = _panels.draw(
        evidence,
        lines,
        _panels.XAxis(
            label="", column="place", ticks=tuple(f"{s}\n{_style.tick_text(images[s])} images" for s in sets)
        ),
        measures=measures,
        reference=_lines({key: point for key, point in quoted.items() if key[1] in sets}, sets),
        caption=(
            "Each point is a model's longest run on that set.",
            "Shaded: from the worst to the best ResNet." if len(resnets) > 1 else "",
        ),
        alt=f"{TITLE}: {len(lines)} models on {len(sets)} sets.",
    )
    if len(resnets) > 1:
        panels = [*drawing.figure.axes, *(drawing.by_task.axes if drawing.by_task else ())]
        for axes, measure in zip(panels, measures, strict=True):
            _range_of(axes, evidence, resnets, measure)
    if evidence.published or evidence.reference or drawing.by_task is None:  # the paper's own Figure 3 is by task
        return drawing
    shown = tuple(a for a in drawing.annotations if a.axes in drawing.figure.axes)
    return replace(drawing, by_task=None, annotations=shown)  # a study's own single tasks are in its tables


def _range_of(axes: Axes, evidence: Evidence, resnets: list[_panels.ModelPoints], measure: str) -> None:
    """Shade, above each upstream set, the range of the ResNets' scores on a measure."""
    spans = by_key(
        (place, 100 * e.value)
        for line in resnets
        for place, point in zip(line.x, line.points, strict=True)
        if (e := evidence.estimate(point, measure)) is not None
    )
    for place, values in spans.items():
        colour, _ = _style.FAMILIES[RESNET]
        wide = [place - 0.4, place + 0.4]
        axes.fill_between(wide, min(values), max(values), color=colour, alpha=BAND_OPACITY, linewidth=0, zorder=1)


def _lines(points: dict[tuple[str, str], Point], sets: list[str]) -> list[_panels.ModelPoints]:
    by_model = by_key((model, point) for (model, _), point in points.items())
    order = sorted(by_model, key=lambda m: (family_rank(by_model[m][0].family), by_model[m][0].params, m))
    lines = []
    for model in order:
        mine = tuple(sorted(by_model[model], key=lambda p: sets.index(p.data)))
        x = tuple(float(sets.index(p.data)) for p in mine)
        lines.append(_panels.ModelPoints(label=model, family=mine[0].family, points=mine, x=x))
    return lines


def _longest(evidence: Evidence) -> dict[tuple[str, str], Point]:
    """Return (model, upstream set) -> the point of its longest run, among the runs on the largest part of that set."""
    by_set: dict[tuple[str, str], Point] = {}
    for point in (series.last for series in evidence.series):
        known = by_set.setdefault((point.model, point.data), point)
        if (point.num_images, point.images_seen) > (known.num_images, known.images_seen):
            by_set[point.model, point.data] = point
    return by_set


FIGURE = Figure(title=TITLE, draw=draw)
