"""What a sweep of learning rates found: upstream accuracy of every model at every rate, and the rate chosen for it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle
from matplotlib.transforms import offset_copy

from bench.analysis import rates
from bench.analysis.evidence import Evidence
from bench.analysis.rates import MARGIN, Sweep, Tried
from bench.analysis.table import without
from bench.core.formatting import count, interval, join, percent, plural
from bench.report.figures import _style
from bench.report.figures._contract import Drawing, Mark, NothingToDraw
from bench.stats.intervals import contents

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TITLE = "Upstream accuracy at every learning rate tried"
COLOURS = "crest_r"  # seaborn's: even steps of lightness, which any colour vision sees alike
SPOILT = "#DEDEDE"  # where a run diverged: lighter than any grey of the map
BRIGHT = 0.26  # relative luminance from which ink is black: contrast is above 3.3 then, in the dark page as well
INK, TEXT, SMALL = "#000000", 10.5, 8.0  # points
BAR, INSET, TRIANGLE = 0.17, 3.0 / 72, 11.0  # inches, inches, points from the edge of a square
OUTLINE = (("white", 5.4), (INK, 2.4))  # black on white stands out from any colour
EDGES = {
    "best": "best at an end of its sweep: a better one may lie beyond",
    "chosen": "chosen is the lowest rate tried; the best is higher",
}


@dataclass(frozen=True, kw_only=True)
class Square:
    """One rate of one model, and its row and column from the top left.

    `share` is its accuracy over that at the model's best rate; NaN where a run diverged, which bars it from the choice.
    """

    row: int
    column: int
    label: str
    sweep: Sweep
    tried: Tried
    share: float

    @property
    def chosen(self) -> bool:
        return self.tried is self.sweep.chosen

    @property
    def edge(self) -> str:
        """A key of `EDGES`, or ""."""
        if self.tried is self.sweep.best and self.sweep.edge:
            return "best"
        return "chosen" if self.chosen and self.tried is self.sweep.tried[0] else ""

    @property
    def written(self) -> str:
        """The accuracy in percent, and how many runs diverged."""
        e, diverged = self.tried.accuracy, self.tried.diverged
        runs = f"{diverged} diverged" if diverged > 1 or (diverged and e) else "diverged" if diverged else ""
        return "\n".join(filter(None, [percent(e.value) if e else "", runs])) or "no score"


def draw(evidence: Evidence) -> Drawing:
    """A heat map: one row per sweep in the order of the tables, one column per rate."""
    found = rates.sweeps(evidence)
    if not found:
        raise NothingToDraw("no model was trained at several learning rates")
    columns = sorted({t.rate for s in found for t in s.tried})
    labels = _labels(evidence, found)
    squares = [
        Square(row=row, column=columns.index(t.rate), label=labels[row], sweep=s, tried=t, share=_share(s, t))
        for row, s in enumerate(found) for t in s.tried
    ]  # fmt: skip
    with _style.context():
        keys = _keys(squares, blank=len(squares) < len(found) * len(columns))
        figure, axes, bar = _layout(len(found), keys)
        _heat(axes, bar, squares, labels, columns)
        _families(axes, found)
        _outline(axes, squares, INSET / _column(labels, len(columns)), INSET / _row(len(found)))
    marks = tuple(
        Mark(axes=axes, x=q.column + 0.5, y=q.row + 0.5, text=_explained(q), cells=q.tried.cells) for q in squares
    )
    return Drawing(figure=figure, data=pd.DataFrame([_record(q) for q in squares]), marks=marks,
                   caption=_caption(squares), alt=_alt(found, columns))  # fmt: skip


def plain(rate: float) -> str:
    """A rate without an exponent: 0.00001."""
    return np.format_float_positional(float(f"{rate:g}"), trim="-")


def _share(sweep: Sweep, tried: Tried) -> float:
    assert sweep.best.accuracy is not None
    best = sweep.best.accuracy.value
    return tried.accuracy.value / best if tried.accuracy and tried.eligible and best else np.nan


def _labels(evidence: Evidence, found: Sequence[Sweep]) -> list[str]:
    """Models by the names they have elsewhere, which say what else sets sweeps apart; the rate itself does not."""
    horizons = (evidence.swept or evidence).horizons
    horizons = horizons[horizons["directory"].isin([name for s in found for name in s.chosen.cells])]
    others = [{key: value for key, value in recipe.items() if key != "lr"} for recipe in horizons["recipe"]]
    named = without(horizons.assign(recipe=others), frozenset())
    series = dict(zip(named["directory"], named["series"], strict=True))
    labels = [next((series[name] for name in s.chosen.cells if name in series), s.model) for s in found]
    shared = Counter(labels)
    return [f"{label}, {count(s.num_images)} images" if shared[label] > 1 and s.num_images else label
            for label, s in zip(labels, found, strict=True)]  # fmt: skip


# -- the picture -----------------------------------------------------------------------------------------------------


def _layout(rows: int, keys: Sequence[Sequence[Artist]]) -> tuple[Figure, Axes, Axes]:
    """The map, and below it, however long models' names are, the keys and the colour bar. Sizes in inches."""
    above, below = rows * _row(rows) + 0.9, max(0.75, 0.25 * max(map(len, keys)) + 0.1)
    figure = _style.figure(height=above + below)
    over, under = figure.subfigures(2, 1, height_ratios=[above, below], squeeze=False).ravel()
    places = under.subplots(1, 3, width_ratios=[1.2, 5, 3])
    for place, handles in zip(places, (*keys, None), strict=True):
        place.axis("off")
        if handles:
            place.legend(handles=handles, loc="upper left", borderaxespad=0.0, labelspacing=0.45, handlelength=1.6)
    return figure, over.subplots(), places[-1].inset_axes((0.0, 1 - BAR / below, 1.0, BAR / below))


def _row(rows: int) -> float:
    """Inches of a row: many are low."""
    return max(0.3, min(0.46, 12 / rows))


def _column(labels: Sequence[str], columns: int) -> float:
    """Inches of a column, about."""
    return (_style.WIDTH - 0.6 - 0.085 * max(map(len, labels))) / columns


def _heat(
    axes: Axes, bar: Axes, squares: Sequence[Square], labels: Sequence[str], columns: Sequence[float]
) -> None:  # fmt: skip
    """Colours by share of the row's best, with what is written in each square."""
    import seaborn  # takes most of a second: only where there is a sweep
    from seaborn.utils import relative_luminance

    shares = np.full((len(labels), len(columns)), np.nan)
    for q in squares:
        shares[q.row, q.column] = 100 * q.share
    floor = min(90.0, 10 * np.floor(np.nanmin(shares) / 10))
    seaborn.heatmap(
        shares, ax=axes, cbar_ax=bar, cmap=COLOURS, vmin=floor, vmax=100.0, mask=np.isnan(shares), linewidths=1.5,
        linecolor="white", xticklabels=False, yticklabels=False, cbar_kws={"orientation": "horizontal"},
    )  # fmt: skip
    bar.set_xlabel("Share of the model's best [%]")
    colours = axes.collections[0].to_rgba(shares)
    wide = 72 * _column(labels, len(columns))
    for q in squares:
        spoilt = np.isnan(q.share)
        if spoilt:
            axes.add_patch(Rectangle((q.column, q.row), 1, 1, facecolor=SPOILT, edgecolor="white", linewidth=1.5))
        bright = spoilt or relative_luminance(colours[q.row, q.column]) > BRIGHT
        _write(axes, q, INK if bright else "white", wide)
    names = [plain(rate) for rate in columns]
    upright = max(map(len, names)) * 7.2 > wide
    axes.set_xticks(np.arange(len(columns)) + 0.5, names, rotation=90 if upright else 0)
    axes.set_yticks(np.arange(len(labels)) + 0.5, labels)
    axes.tick_params(length=0)
    axes.tick_params(axis="y", pad=14)
    axes.grid(visible=False)
    axes.set_xlabel("Learning rate")
    axes.set_title("Upstream test accuracy [%]", loc="left", fontsize=11)


def _lines(square: Square) -> list[str]:
    """Lines in the size of the others; those of a square with two are small."""
    return [] if "\n" in square.written else [square.written]


def _write(axes: Axes, square: Square, ink: str, wide: float) -> None:
    """What a square `wide` points wide says. At the edge of a sweep with a triangle towards the rates beyond, hollow
    where the best is within."""
    lines = square.written.split("\n")
    letters, lowest = max(4, *map(len, lines)), square.tried is square.sweep.tried[0]
    size, aside = min(TEXT if len(lines) == 1 else SMALL, wide / 0.75 / letters), 0.0
    if square.edge:  # the number makes way for the triangle
        size = min(size, (wide - 2 * TRIANGLE) / 0.7 / letters)
        aside = max(0.0, TRIANGLE + 5 + 0.35 * size * letters - wide / 2) / wide
        inwards = offset_copy(axes.transData, axes.get_figure(root=True), x=TRIANGLE if lowest else -TRIANGLE,
                              units="points")  # fmt: skip
        axes.plot([square.column + (not lowest)], [square.row + 0.5], marker="<" if lowest else ">", color=ink,
                  markersize=min(6.5, 0.12 * wide), fillstyle="full" if square.edge == "best" else "none",
                  transform=inwards, scalex=False, scaley=False)  # fmt: skip
    axes.text(square.column + 0.5 + (aside if lowest else -aside), square.row + 0.5, square.written, color=ink,
              ha="center", va="center", linespacing=1.0, fontsize=size,
              fontweight="bold" if square.chosen else "normal")  # fmt: skip


def _families(axes: Axes, found: Sequence[Sweep]) -> None:
    """A strip in the family's colour beside every row, and a gap between families."""
    families, row = [s.family for s in found], 0
    for family, members in groupby(families):
        rows = len(list(members))
        axes.add_patch(Rectangle((-0.013, row), 0.008, rows, facecolor=_style.look(family, families)[0], linewidth=0,
                                 transform=axes.get_yaxis_transform(), clip_on=False))  # fmt: skip
        row += rows
    for row, (above, below) in enumerate(pairwise(families), start=1):
        if above != below:
            axes.plot([-0.02, 1], [row, row], color="white", linewidth=6, transform=axes.get_yaxis_transform(),
                      clip_on=False, solid_capstyle="butt", zorder=2)  # fmt: skip


def _outline(axes: Axes, squares: Sequence[Square], dx: float, dy: float) -> None:
    """Around the chosen, `dx` and `dy` within the square, so that neighbours' outlines do not meet."""
    for q in squares:
        for colour, width in OUTLINE if q.chosen else ():
            axes.add_patch(Rectangle((q.column + dx, q.row + dy), 1 - 2 * dx, 1 - 2 * dy, fill=False, zorder=3,
                                     edgecolor=colour, linewidth=width, joinstyle="miter"))  # fmt: skip


def _keys(squares: Sequence[Square], *, blank: bool) -> tuple[list[Artist], list[Artist]]:
    """What colours of families and what signs mean: those that occur."""
    families = list(dict.fromkeys(q.sweep.family for q in squares))
    named: list[Artist] = [Patch(facecolor=_style.look(family, families)[0], label=family) for family in families]
    rule = f"chosen: the lowest rate within {100 * MARGIN:g} points of the best"
    signs: list[Artist] = [Patch(fill=False, edgecolor=INK, linewidth=2.2, label=rule)]
    signs += [
        Line2D([], [], linestyle="", marker=">" if edge == "best" else "<", color=INK, label=text,
               fillstyle="full" if edge == "best" else "none")
        for edge, text in EDGES.items() if any(q.edge == edge for q in squares)
    ]  # fmt: skip
    if any(q.tried.diverged for q in squares):
        signs.append(Patch(facecolor=SPOILT, label="a run diverged: not chosen"))
    if blank:
        signs.append(Patch(facecolor="white", edgecolor="#BBBBBB", label="no finished run at this rate"))
    return named, signs


# -- words and numbers -----------------------------------------------------------------------------------------------


def _explained(square: Square) -> str:
    """Lines of plain text for the pointer."""
    e, sweep = square.tried.accuracy, square.sweep
    lines = [
        f"{square.label} at learning rate {plain(square.tried.rate)}",
        f"{interval(e.value, e.half)} % of {sweep.data} after {count(sweep.images_seen)} images seen" if e else "",
        e.counts if e else "",
        f"{plural(square.tried.diverged, 'run')} diverged" if square.tried.diverged else "",
        "the best" if square.tried is sweep.best else "",
        f"chosen: the lowest within {100 * MARGIN:g} points of the best" if square.chosen else "",
        EDGES.get(square.edge, ""),
    ]
    return "\n".join(line for line in lines if line)


def _record(square: Square) -> dict[str, Any]:
    e, sweep = square.tried.accuracy, square.sweep
    return {
        "series": square.label, "model": sweep.model, "family": sweep.family, "data": sweep.data,
        "num_images": sweep.num_images, "images_seen": sweep.images_seen, "learning_rate": square.tried.rate,
        "accuracy": e.value if e else np.nan, "low": e.low if e else np.nan, "high": e.high if e else np.nan,
        "seeds": e.num_seeds if e else 0, "test_images": e.num_test if e else 0, "share_of_best": square.share,
        "diverged": square.tried.diverged, "chosen": square.chosen, "best": square.tried is sweep.best,
        "edge": square.edge,
    }  # fmt: skip


def _caption(squares: Sequence[Square]) -> str:
    estimates = [q.tried.accuracy for q in squares if q.tried.accuracy]
    seeds = {e.num_seeds for e in estimates}
    parts = [
        f"Numbers: upstream test accuracy [%] ({join(sorted({q.sweep.data for q in squares}))}) after "
        f"{_span({q.sweep.images_seen for q in squares})} images seen; n: {_span(seeds)} seed{'s' * (max(seeds) > 1)} "
        f"per rate, {_span({e.num_test for e in estimates})} test images. Colours compare the rates of one model, not "
        "models: its accuracy as a share of that at its best rate. Outlined and bold: the rate chosen, the lowest "
        f"within {100 * MARGIN:g} points of the best; accuracies there are slightly flattered."
    ]
    if any(q.edge for q in squares):
        parts.append("A triangle marks the edge of a sweep: filled where the best rate lies on it, so that a better "
                     "one may lie beyond; hollow where only the chosen one does.")  # fmt: skip
    if any(q.tried.diverged for q in squares):
        parts.append("Grey: runs diverged, which bars a rate from the choice.")
    sizes = {(q.sweep.data, q.sweep.num_images or 0) for q in squares}
    widest = f"The widest is ± {100 * max(e.half for e in estimates):.1f} points."
    return " ".join([*parts, contents(estimates, trained_on=sizes), widest])


def _span(numbers: set[int]) -> str:
    low, high = min(numbers), max(numbers)
    return count(low) if low == high else f"{count(low)} to {count(high)}"


def _alt(found: Sequence[Sweep], columns: Sequence[float]) -> str:
    chosen = Counter(s.chosen.rate for s in found)
    named = join([f"{plain(rate)} for {plural(chosen[rate], 'model')}" for rate in sorted(chosen)])
    edges = sum(bool(s.edge) for s in found)
    return (f"{TITLE}: {plural(len(found), 'model')} at {plural(len(columns), 'rate')} from {plain(columns[0])} to "
            f"{plain(columns[-1])}. Chosen: {named}. Best at the end of the sweep: {edges or 'none'}.")  # fmt: skip
