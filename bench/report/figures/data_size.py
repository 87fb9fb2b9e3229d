"""Figure of accuracy against the number of distinct pre-training images, in the manner of the ViT paper's Figure 4."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pandas as pd
from matplotlib.lines import Line2D

from bench.analysis import targets, wording
from bench.analysis.comparisons import SizeCurve, size_curves
from bench.analysis.evidence import HEADLINE, Evidence
from bench.analysis.finding import Finding
from bench.analysis.targets import AccuracyTarget
from bench.core.formatting import count, join
from bench.questions.images_for_a_target import QUESTION
from bench.report.figures import _panels, _style
from bench.report.figures.figure import Drawing, Figure, NothingToDraw

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

TITLE = "Accuracy versus number of pre-training images"


def draw(evidence: Evidence) -> Drawing:
    """Draw accuracy with one line per model. All points of a line have seen equally many images, but different numbers
    of distinct images."""
    curves = size_curves(evidence, every=True)
    if not curves:
        raise NothingToDraw("no model was trained on two or more numbers of images")
    lines = [
        _panels.ModelPoints(
            label=c.label, family=c.family, points=c.points, x=tuple(float(p.unique_images) for p in c.points)
        )
        for c in curves
    ]
    needed = [f for f in QUESTION.ask(evidence) if f.estimate] if evidence.headline else []
    seen = join([f"{c.label} {count(c.points[0].images_seen)}" for c in curves])
    drawing = _panels.draw(
        evidence,
        lines,
        _panels.XAxis(label="Distinct pre-training images", column="distinct_images", trend=True),
        caption=(
            f"Every point of a line has seen equally many images: {seen}.",
            "Bands are the points' intervals.",
            f"Hollow: where another run of each family reaches {targets.target(needed[0])}, with its interval."
            if needed
            else "",
        ),
        alt=f"{TITLE}: {len(lines)} models.",
    )
    rows = [_mark(drawing.figure.axes[0], f, curves) for f in needed]
    if rows:
        _name_marks(drawing.figure, targets.target(needed[0]))
    return replace(drawing, data=pd.concat([drawing.data, pd.DataFrame(rows)], ignore_index=True)) if rows else drawing


def _mark(axes: Axes, f: Finding, curves: Sequence[SizeCurve]) -> dict[str, Any]:
    """Mark where one more run of a family is expected to reach a target accuracy: a hollow marker with its interval, on
    a dotted line at the target. Return the mark's row of the figure's table. `f`: the finding that holds number,
    interval and target."""
    family, (left, right), y = f.subject[0], axes.get_xlim(), 100 * wording.every(f, AccuracyTarget)[0].accuracy
    colour, marker = _style.look(family, [curve.family for curve in curves])
    x, low, high = (float(f"{end:.6g}") for end in (f.estimate or left, f.low or left, f.high or right))
    axes.axhline(y, color=_style.INK, linewidth=0.8, linestyle=":", zorder=1)
    axes.plot([low, high], [y, y], color=colour, linewidth=6, alpha=0.3, solid_capstyle="butt", zorder=2)
    axes.plot(x, y, color=colour, marker=marker, markerfacecolor="white", markersize=7, zorder=5)
    about = {"measure": HEADLINE, "kind": QUESTION.name, "series": f"law of {family}", "family": family}
    return about | {"distinct_images": x, "accuracy": y / 100}


def _name_marks(figure: Canvas, target: str) -> None:
    """Add an entry for the hollow marks of `_mark` to the figure's legend. `target`: the target accuracy in words."""
    named = figure.legends.pop()
    handles = [handle for handle in named.legend_handles if handle is not None]
    for handle, text in zip(handles, named.texts, strict=True):
        handle.set_label(text.get_text())
    hollow = Line2D([], [], color=_style.INK, linestyle=":", linewidth=0.8, marker="o", markerfacecolor="white")
    hollow.set_label(f"reaches {target}")
    with _style.context():
        _style.legend(figure, [*handles, hollow])


FIGURE = Figure(title=TITLE, draw=draw)
