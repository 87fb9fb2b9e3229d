"""How far a model of one family is ahead of one of another at equal compute, against distinct pre-training images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pandas as pd
from matplotlib.lines import Line2D

from bench.analysis import catch_up
from bench.analysis.catch_up import EqualComputePoint, GapSeries
from bench.analysis.evidence import HEADLINE, Evidence
from bench.core.formatting import count, flops, join, signed
from bench.report.figures import _style
from bench.report.figures._contract import Annotation, Drawing, NothingToDraw
from bench.stats.intervals import contents

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TITLE = "Who is ahead at equal compute, by number of pre-training images"
PANEL, HEIGHT = 5.0, 4.6  # inches
MOST = 2  # pairs of models: the best of the families widest apart, then the next
DASH = (0, (4, 2))


def draw(evidence: Evidence) -> Drawing:
    """A panel per pair of models; a line per budget, and one along which every image is seen once."""
    found = catch_up.gap_series(evidence)
    pairs = list({line.models: line.names for line in found}.items())[:MOST]
    if not pairs:
        raise NothingToDraw("no two families were trained with equal compute on four or more numbers of images")
    rows: list[dict[str, Any]] = []
    annotations: list[Annotation] = []
    every: list[EqualComputePoint] = []
    with _style.context():
        figure = _style.figure(width=max(6.4, PANEL * len(pairs)), height=HEIGHT)
        panels = figure.subplots(1, len(pairs), sharey=True, squeeze=False)[0]
        for axes, (models, names) in zip(panels, pairs, strict=True):
            mine = sorted((line for line in found if line.models == models), key=lambda line: line.flops)
            handles = []
            for number, line in enumerate(mine):
                shade = _style.shade(_colour(line, evidence), number, len(mine))
                _line(axes, evidence, line.places, shade, rows, annotations, name=flops(line.flops))
                handles.append(Line2D([], [], color=shade, marker="o", linewidth=2, label=f"{flops(line.flops)} each"))
            once = catch_up.new_images(evidence, models)
            if len(once) > 1:
                _line(axes, evidence, once, "#555555", rows, annotations, name="every image once", dashed=True)
                handles.append(
                    Line2D(
                        [],
                        [],
                        color="#555555",
                        marker="D",
                        markersize=5,
                        linestyle=DASH,
                        label="each image once, more compute",
                    )
                )
            every += [place for line in mine for place in line.places] + list(once)
            axes.axhline(0, color="black", linewidth=1)
            _style.plain_log_x(axes, [row["distinct_images"] for row in rows])
            axes.set_xlabel("Distinct pre-training images")
            axes.set_title(f"{names[0]} minus {names[1]}")
            if axes is panels[0]:  # the others' lines are as light and as dark
                axes.legend(handles=handles, loc="lower right", frameon=True, framealpha=0.85, edgecolor="none")
        panels[0].set_ylabel("Difference in accuracy [points]")
    return Drawing(
        figure=figure,
        data=pd.DataFrame(rows),
        annotations=tuple(annotations),
        caption=_caption(evidence, found, every),
        alt=f"{TITLE}: {' minus '.join(pairs[0][1])}, {_ends(found)}.",
    )


def _colour(line: GapSeries, evidence: Evidence) -> str:
    """That of the family which is compared with."""
    return _style.look(line.families[1], [s.family for s in evidence.series])[0]


def _line(
    axes: Axes,
    evidence: Evidence,
    places: Sequence[EqualComputePoint],
    colour: Any,
    rows: list[dict[str, Any]],
    annotations: list[Annotation],
    *,
    name: str,
    dashed: bool = False,
) -> None:
    x, y = [p.x for p in places], [100 * p.gap.value for p in places]
    look: dict[str, Any] = {"linewidth": 2.2, "marker": "o", "markersize": 7}
    if dashed:
        look = {"linewidth": 1.3, "marker": "D", "markersize": 5, "linestyle": DASH}
    axes.plot(x, y, color=colour, markeredgecolor="white", zorder=3, **look)
    low, high = ([100 * getattr(p.gap, end) for p in places] for end in ("low", "high"))
    axes.vlines(x, low, high, colors=[colour], linewidth=1.3)
    for place in places:
        a, b = place.first, place.second
        rows.append(
            {
                "first": a.family,
                "second": b.family,
                "line": name,
                "distinct_images": place.x,
                "gap": place.gap.value,
                "low": place.gap.low,
                "high": place.gap.high,
                "first_model": a.series,
                "second_model": b.series,
                "first_images_seen": a.images_seen,
                "second_images_seen": b.images_seen,
                "first_flops": a.train_flops,
                "second_flops": b.train_flops,
                "seeds": place.gap.num_seeds,
            }
        )
        text = (
            f"{a.series} minus {b.series}: {signed(place.gap.value)} points\n{flops(a.train_flops)} each\n"
            f"{count(a.unique_images)} and {count(b.unique_images)} distinct images"
        )
        cells = (*evidence.cells.get(a.variant, ()), *evidence.cells.get(b.variant, ()))
        annotations.append(Annotation(axes=axes, x=place.x, y=100 * place.gap.value, text=text, cells=cells))


def _ends(found: Sequence[GapSeries]) -> str:
    places = found[0].places
    return (
        f"{signed(places[0].gap.value)} points with {count(places[0].x)} images and "
        f"{signed(places[-1].gap.value)} with {count(places[-1].x)}"
    )


def _caption(evidence: Evidence, found: Sequence[GapSeries], every: Sequence[EqualComputePoint]) -> str:
    names = dict.fromkeys(p.series for line in found for place in line.places for p in (place.first, place.second))
    trained_on = [(p.data, p.num_images) for place in every for p in (place.first, place.second)]
    return (
        f"Above zero the first is ahead. Models: {join(list(names))}; a line joins runs of equal training "
        "compute. On the dashed line no image is seen twice: compute grows with the images. A model that sees fewer "
        f"than there are counts as trained on all. {evidence.shots}-shot linear probe, mean over "
        f"{', '.join(evidence.parts(HEADLINE))}. {contents([p.gap for p in every], trained_on=trained_on)} "
        f"n: {every[0].gap.counts}."
    )
