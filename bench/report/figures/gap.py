"""Figure of the lead of one family's model over another family's at equal training compute, against the number of
distinct pre-training images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pandas as pd
import seaborn.objects as so

from bench.analysis.evidence import HEADLINE, Evidence
from bench.analysis.gap_series import EqualComputePoint, GapSeries, gap_series
from bench.core.formatting import count, flops, join, number_of_flops, signed
from bench.report.figures import _style
from bench.report.figures.figure import Annotation, Drawing, Figure, NothingToDraw
from bench.stats.intervals import contents

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TITLE = "Who is ahead at equal compute, by number of pre-training images"
MAX_PANELS = 2  # pairs of models that are drawn: the best of the families widest apart, then the next


def draw(evidence: Evidence) -> Drawing:
    """Draw by how many points of accuracy the first model of a pair leads the second, at equal compute, against the
    number of distinct images: one panel, with a line per pair of models and budget."""
    lines = gap_series(evidence)
    pairs = list(dict.fromkeys(line.models for line in lines))[:MAX_PANELS]
    if not pairs:
        raise NothingToDraw("no two families were trained with equal compute on four or more numbers of images")
    shown = [line for models in pairs for line in sorted(lines, key=lambda line: line.flops) if line.models == models]
    rows = [_row(line, place) for line in shown for place in line.places]
    table = pd.DataFrame(rows)
    drawn = table.assign(**{f"{name}_points": 100 * table[name] for name in ("gap", "low", "high")})
    drawn["name"] = [_name(line, shown) for line in shown for _ in line.places]
    colours = dict(zip(dict.fromkeys(drawn["name"]), _colours(shown, evidence), strict=True))
    with _style.context():
        figure = _style.figure(columns=1)
        (
            so.Plot(drawn, x="distinct_images", y="gap_points", ymin="low_points", ymax="high_points", color="name")
            .scale(color=so.Nominal(colours))
            .add(so.Band(alpha=0.12, edgewidth=0), legend=False)
            .add(so.Line(linewidth=2.2, marker="o", pointsize=7, edgecolor="w"), legend=False)
            .theme(_style.theme())
            .on(figure)
            .plot()
        )
        (axes,) = figure.axes
        _style.plain_log_x(axes, list(table["distinct_images"]), room=0.12)
        _shade_behind(axes, {line.families for line in shown})
        over = f"Lead over {shown[0].names[1]}" if _one_rival(shown) else "Lead"
        axes.set(xlabel="Distinct pre-training images", ylabel=f"{over} at equal compute [points]")
        last = drawn.groupby("name", sort=False).tail(1)
        ends = list(
            zip(last["distinct_images"], last["gap_points"], last["name"], map(colours.get, last["name"]), strict=True)
        )
        curves = [list(zip(m["distinct_images"], m["gap_points"], strict=True)) for _, m in drawn.groupby("name")]
        _style.name_points(axes, ends, curves=[*curves, [(x, 0) for x in axes.get_xlim()]])
    places = [place for line in shown for place in line.places]
    return Drawing(
        figure=figure,
        data=table,
        annotations=tuple(_annotation(evidence, axes, place) for place in places),
        caption=_caption(evidence, shown, places),
        n=places[0].estimate.counts,
        alt=f"{TITLE}: {' minus '.join(shown[0].names)}, {_ends(shown)}.",
    )


def _one_rival(lines: Sequence[GapSeries]) -> bool:
    """Return whether all lines show the lead over the same model."""
    return len({line.names[1] for line in lines}) == 1


def _name(line: GapSeries, shown: Sequence[GapSeries]) -> str:
    compared = line.names[0] if _one_rival(shown) else " − ".join(line.names)
    return f"{compared},\n{' '.join(number_of_flops(line.flops, [other.flops for other in shown]))} each"


def _colours(lines: Sequence[GapSeries], evidence: Evidence) -> list[Any]:
    """Return the colour of each line: the colour of the family whose lead is drawn, in a different shade for each line
    of one family."""
    families = [s.family for s in evidence.series]
    base = [_style.look(line.families[0], families)[0] for line in lines]
    made = {colour: iter(_style.shades(colour, base.count(colour))) for colour in base}
    return [next(made[colour]) for colour in base]


def _shade_behind(axes: Axes, families: set[tuple[str, str]]) -> None:
    """Shade the lower half of a panel, in which the second family is ahead, and write in both halves who is ahead.
    `families`: the (first, second) families of the panel's lines."""
    first, second = next(iter(families)) if len(families) == 1 else ("first", "second")
    low, high = axes.get_ylim()
    low, high = min(low, -0.1 * (high - low)), max(high, 0.1 * (high - low))
    axes.axhspan(low, 0, color=_style.GREY, alpha=0.08, linewidth=0, zorder=0)
    axes.axhline(0, color=_style.INK, linewidth=1)
    axes.set_ylim(low, high)
    for family, x, y, side in ((first, 0.015, 0.975, "left"), (second, 0.985, 0.025, "right")):
        axes.text(
            *(x, y, f"{family} ahead"),
            transform=axes.transAxes,
            ha=side,
            va="top" if y > 0.5 else "bottom",
            fontweight="bold",
            fontsize=_style.text(9.5),
        )


def _row(line: GapSeries, place: EqualComputePoint) -> dict[str, Any]:
    a, b = place.first, place.second
    return {
        "first": a.family,
        "second": b.family,
        "line": flops(line.flops),
        "distinct_images": place.x,
        "gap": place.estimate.value,
        "low": place.estimate.low,
        "high": place.estimate.high,
        "first_model": a.series,
        "second_model": b.series,
        "first_images_seen": a.images_seen,
        "second_images_seen": b.images_seen,
        "first_flops": a.train_flops,
        "second_flops": b.train_flops,
        "seeds": place.estimate.num_seeds,
    }


def _annotation(evidence: Evidence, axes: Axes, place: EqualComputePoint) -> Annotation:
    a, b = place.first, place.second
    text = (
        f"{a.series} minus {b.series}: {signed(place.estimate.value)} points\n{flops(a.train_flops)} each\n"
        f"{count(a.unique_images)} and {count(b.unique_images)} distinct images"
    )
    cells = (*evidence.cells.get(a.variant, ()), *evidence.cells.get(b.variant, ()))
    return Annotation(axes=axes, x=place.x, y=100 * place.estimate.value, text=text, cells=cells)


def _ends(lines: Sequence[GapSeries]) -> str:
    places = lines[0].places
    return (
        f"{signed(places[0].estimate.value)} points with {count(places[0].x)} images and "
        f"{signed(places[-1].estimate.value)} with {count(places[-1].x)}"
    )


def _caption(evidence: Evidence, lines: Sequence[GapSeries], every: Sequence[EqualComputePoint]) -> str:
    names = dict.fromkeys(p.series for line in lines for place in line.places for p in (place.first, place.second))
    trained_on = [(p.data, p.num_images) for place in every for p in (place.first, place.second)]
    return (
        f"Above zero the first is ahead. Models: {join(list(names))}; a line joins runs of equal training "
        "compute, its band is the interval. A model that sees fewer images than there are counts as trained on all. "
        f"{evidence.shots}-shot linear probe, mean over "
        f"{', '.join(evidence.parts(HEADLINE))}. {contents([p.estimate for p in every], trained_on=trained_on)}"
    )


FIGURE = Figure(title=TITLE, draw=draw)
