"""Figure: how much accuracy published networks gain if they are pre-trained on ImageNet-21k instead of ImageNet-1k."""

from __future__ import annotations

from typing import Any

import pandas as pd
from matplotlib.lines import Line2D

from bench.analysis.evidence import Evidence
from bench.core.formatting import signed
from bench.published import drawing
from bench.published.matched import gains
from bench.report.figures import _style
from bench.report.figures.figure import Annotation, Drawing, Figure

TITLE = "The same network, pre-trained on more images"
MARKERS = "o", "D"  # the first marks accuracy after ImageNet-1k, the second after ImageNet-21k


def draw(evidence: Evidence) -> Drawing:
    """Draw for each network a line from its accuracy after pre-training on ImageNet-1k to that after ImageNet-21k.

    Raises:
        NothingToDraw: the evidence is not that of published networks.
    """
    drawing.expect_public(evidence)
    every, colour = gains(), _style.COLOURS[1]
    annotations = []
    with _style.context():
        figure = _style.figure(height=0.38 * len(every) + 1.4, width=_style.current().single[0] + 1.2)
        axes = figure.subplots()
        for place, gain in enumerate(every):
            look = drawing.look(colour, controlled=not gain.differs)
            ends = [100 * gain.fewer, 100 * gain.more]
            axes.plot(ends, [place, place], linewidth=1.8, zorder=2, color=colour, linestyle=look["linestyle"])
            axes.plot(ends[0], place, zorder=3, **_end(colour, MARKERS[0], filled=False))
            axes.plot(ends[1], place, zorder=3, **_end(colour, MARKERS[1], filled=True))
            axes.annotate(
                signed(gain.gain),
                (ends[1], place),
                (9, 0),
                textcoords="offset points",
                va="center",
                fontsize=_style.text(9),
            )
            said = f"{gain.network}\n{ends[0]:.1f} to {ends[1]:.1f} %\n{gain.differs}"
            annotations.append(Annotation(axes=axes, x=ends[1], y=place, text=said.strip()))
        axes.set_yticks(range(len(every)), [gain.network for gain in every])
        axes.set(ylim=(len(every) - 0.4, -0.6), xlabel="ImageNet top-1 accuracy [%]")
        axes.set_xlim(right=max(100 * gain.more for gain in every) + 2)
        axes.grid(axis="y", visible=False)
        _style.legend(figure, _key(colour), columns=1)
    rows = [
        {"network": g.network, "in1k": g.fewer, "in21k": g.more, "gain": g.gain, "half": g.half, "differs": g.differs}
        for g in every
    ]
    return Drawing(
        figure=figure,
        data=pd.DataFrame(rows),
        annotations=tuple(annotations),
        caption=(
            "Circles: after ImageNet-1k (1.28M images); diamonds: after ImageNet-21k. Same authors and test size. 95 % "
            "intervals of a gain are about half a point, without chance in training.",
            drawing.QUOTED,
        ),
        alt=f"{TITLE}: {len(every)} networks.",
    )


def _end(colour: str, marker: str, *, filled: bool) -> dict[str, Any]:
    """Return matplotlib's settings for the marker of an accuracy. The marker shows the pre-training set, and is the
    same whether the comparison is controlled or not."""
    look = {"color": colour, "linestyle": "", "marker": marker, "markeredgecolor": colour}
    return look | {"markerfacecolor": colour if filled else "white"}


def _key(colour: str) -> list[Line2D]:
    """Return the entries of the legend: the markers of both pre-training sets, and the lines of controlled and other
    comparisons."""
    names = ("after ImageNet-1k", "after ImageNet-21k")
    marks = [
        Line2D([], [], label=name, **_end(colour, marker, filled=filled))
        for name, marker, filled in zip(names, MARKERS, (False, True), strict=True)
    ]
    kinds = {"controlled: the images differ, nothing else": True, "not controlled: recipes differ too": False}
    lines = ((label, drawing.look(colour, controlled=kind)) for label, kind in kinds.items())
    return [*marks, *(Line2D([], [], label=label, **(look | {"marker": ""})) for label, look in lines)]


FIGURE = Figure(title=TITLE, draw=draw)
