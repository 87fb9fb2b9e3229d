"""One look for all figures: seaborn's theme and palettes, colour and marker by family, plain numbers on logarithmic
axes, labels beside what they name."""

from __future__ import annotations

import math
import textwrap
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import pairwise
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import matplotlib
import numpy as np
import seaborn as sns
from matplotlib.collections import LineCollection, PathCollection
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.text import Annotation
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullFormatter, NullLocator
from matplotlib.transforms import Bbox

from bench.analysis.families import HYBRID, RESNET, VIT, kind_of
from bench.core.formatting import significant
from bench.report.style import PAGE, Style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

DPI = 144
COLOURS: tuple[str, ...] = tuple(sns.color_palette("colorblind").as_hex())
FAMILIES = {VIT: (COLOURS[0], "o"), HYBRID: (COLOURS[2], "^"), RESNET: (COLOURS[3], "s")}
OTHER_FAMILIES = (
    (COLOURS[4], "D"),
    (COLOURS[1], "v"),
    (COLOURS[9], "P"),
    (COLOURS[8], "X"),
    (COLOURS[7], "<"),
)
VARIANTS = tuple(zip((COLOURS[n] for n in (4, 9, 5, 7, 1)), "Dvh<>", strict=True))  # none is a family's
LOOKS = (*FAMILIES.values(), *OTHER_FAMILIES)  # looks of groups, in order, where no family is drawn beside them
INK, GREY = "#333333", "#767676"
PIXELS: dict[str, Any] = {"color": INK, "linestyle": "-.", "linewidth": 1.1}
EXTRAPOLATED = (0, (4, 2))  # dashes of what lies beyond every measured point
THEME = {
    **sns.axes_style("whitegrid"),
    **sns.plotting_context("notebook"),
    "svg.hashsalt": "vit-scaling-bench",
    "svg.fonttype": "path",
    "pdf.fonttype": 42,  # TrueType: whole letters, which journals ask for
    "font.sans-serif": ["DejaVu Sans"],
    "axes.titlesize": 11,
    "axes.labelsize": 10.5,
    "xtick.labelsize": 9.5,
    "ytick.labelsize": 9.5,
    "legend.fontsize": 9.5,
    "legend.frameon": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#444444",
    "axes.linewidth": 0.9,
    "grid.color": "#E4E4E4",
    "grid.linewidth": 0.7,
    "xtick.bottom": True,
    "ytick.left": True,
    "xtick.major.size": 3.5,
    "ytick.major.size": 3.5,
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
}
TEXT_SIZES = (
    "font.size",
    "axes.titlesize",
    "axes.labelsize",
    "xtick.labelsize",
    "ytick.labelsize",
    "legend.fontsize",
    "legend.title_fontsize",
)
SENTENCE_SIZE = 11.5  # points on the page: size of the sentence above a figure
LETTER_WIDTH = 0.66  # width of a bold letter over its size
LABEL_SIZE = 8.5  # points on the page: size of a name beside a point
TITLE_LETTER = 0.5  # width of a letter of a title, as a fraction of its size
AXIS_ROOM = 0.5  # inches beside a panel, for ticks and their labels
MIN_LINE_LETTERS = 8  # fewest letters in a line of a label that is broken into lines
BEHIND_TEXT: dict[str, Any] = {"facecolor": "white", "alpha": 0.7, "linewidth": 0, "pad": 0.4}
NAME_GAP = 3  # fewest pixels between two names
LINE_HEIGHT = 1.25  # height of a line of text over its size
ON_LINE = 5  # pixels: half of what a marker is wide
PLACES: tuple[Any, ...] = (
    "lower left",
    "upper right",
    "upper left",
    "lower right",
    "center right",
    "center left",
)  # places of a legend inside a panel
MARKER = 10  # points of a line that are as bad to cover as one marker
MAX_LARGE_NAMES = 4  # number of names up to which they are as large as in a legend
NEAR, FAR, FARTHER = 6, 26, 46  # points between a plotted point and its name; beyond NEAR a line joins them
DIRECTIONS = ((1, 0), (1, 1), (1, -1), (0, 1), (0, -1), (-1, 0), (-1, 1), (-1, -1))  # in which a name may stand
ALIGNED = {1: ("left", "bottom"), 0: ("center", "center"), -1: ("right", "top")}
COVERS_POINT, COVERS_LINE, STANDS_FAR = 30, 3, 0.5  # penalties of a place for a name; STANDS_FAR per point of distance


_current = ContextVar("style", default=PAGE)


def current() -> Style:
    """Return the style (sizes of figures and of text) in which figures are drawn at present."""
    return _current.get()


@contextmanager
def drawn_as(style: Style) -> Iterator[None]:
    """Context manager within which figures are drawn in this style."""
    before = _current.set(style)
    try:
        yield
    finally:
        _current.reset(before)


def theme() -> dict[str, Any]:
    """Return matplotlib's settings for all figures, with the text sizes of the current style."""
    return THEME | {name: text(float(THEME[name])) for name in TEXT_SIZES}


@contextmanager
def context() -> Iterator[None]:
    """Context manager within which matplotlib has its defaults and the project's settings on top, regardless of the
    user's own configuration."""
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        for name, value in theme().items():
            matplotlib.rcParams[name] = value  # type: ignore[index]
        yield


def say(figure: Figure, sentence: str) -> Bbox:
    """Write a sentence on a strip above a figure, from its left edge, in as many lines as it needs. Return the area to
    save, in inches, which contains the strip; the figure below it keeps its layout."""
    size, (width, height) = text(SENTENCE_SIZE), figure.get_size_inches()
    lines = textwrap.wrap(sentence, round(width * 72 / (LETTER_WIDTH * size)), break_on_hyphens=False)
    strip = (len(lines) * LINE_HEIGHT + 1) * size / 72
    top = 1 + (strip - 0.5 * size / 72) / height
    wrap_labels(figure)
    figure.draw_without_rendering()  # arranges it
    figure.set_layout_engine("none")
    for key in figure.legends:  # otherwise legends move to the top of the saved area
        key.set_bbox_to_anchor((0, 0, 1, 1), figure.transFigure)
    figure.text(0.012, top, "\n".join(lines), ha="left", va="top", fontsize=size, fontweight="bold")
    return Bbox([[0, 0], [width, height + strip]])


def arrange(figure: Figure) -> None:
    """Lay a figure out without drawing it. Text is measured at the resolution of the PNG, so that the layout is that of
    the PNG."""
    before = figure.get_dpi()
    figure.set_dpi(DPI)
    figure.draw_without_rendering()
    figure.set_dpi(before)


def text(points: float) -> float:
    """Return the font size, in points, that a text of size `points` on the page has in the current style."""
    return current().text(points)


def columns(panels: int) -> int:
    """Return how many panels stand beside each other in the current style, if a figure has `panels` of them."""
    return min(current().columns, panels)


def figure(*, height: float | None = None, width: float | None = None, columns: int = 2) -> Figure:
    """Return an empty figure that arranges its panels so that nothing overlaps.

    Args:
        height: inches, as far as the style allows it; None: the height of one panel.
        width: inches, as far as the style allows it; None: the width of `columns` panels beside each other.
    """
    size = current().size(width or current().width_of(columns), height or current().single[1])
    made = Figure(figsize=size, layout="constrained")
    made.get_layout_engine().set(h_pad=0.08, w_pad=0.08)  # type: ignore[union-attr,call-arg]
    return made


def mark(figure: Figure, words: str) -> None:
    """Write words across a picture, in front of everything else, so that every copy of the picture shows them."""
    width, height = figure.get_size_inches()
    size = min(72 * height / 4, 1.6 * 72 * width / max(1, len(words)))
    written = figure.text(
        0.5, 0.5, words, ha="center", va="center", fontsize=size, color=GREY, alpha=0.35, rotation=20, zorder=50
    )
    written.set_in_layout(False)


def look(family: str, families: Iterable[str]) -> tuple[str, str]:
    """Return (colour, marker) of a family. The colours of ViTs, hybrids and ResNets are fixed; of all families that are
    shown (`families`), the others get the remaining colours in alphabetical order."""
    if (kind := kind_of(family)) is not None:
        return FAMILIES[kind]
    unknown = sorted(f for f in set(families) if kind_of(f) is None)
    return OTHER_FAMILIES[unknown.index(family) % len(OTHER_FAMILIES)] if family in unknown else OTHER_FAMILIES[-1]


def shades(colour: str, members: int) -> list[Any]:
    """Return `members` shades of a family's colour, from light, for its smallest model, to dark, for its largest."""
    mixed = sns.blend_palette(["white", colour, "black"], as_cmap=True)
    return [mixed(place) for place in np.linspace(0.3, 0.78, members)] if members > 1 else [colour]


def family_handles(families: Sequence[str], *, hollow: bool = False) -> list[Line2D]:
    """Return the legend's entries of these families; `hollow`: with hollow markers, for published points."""
    return handles({family: look(family, families) for family in families}, hollow=hollow)


def handles(looks: Mapping[str, tuple[str, str]], *, hollow: bool = False, joined: bool = False) -> list[Line2D]:
    """Return the entries of a legend.

    Args:
        looks: name of an entry -> (colour, marker).
        hollow: whether markers are hollow, for published points.
        joined: whether an entry shows a line through its marker, for points that are joined.
    """
    return [
        Line2D(
            [],
            [],
            linestyle="-" if joined else "",
            linewidth=1.0,
            marker=marker,
            markersize=7,
            color=colour,
            label=name,
            markerfacecolor="white" if hollow else colour,
            markeredgecolor=colour if hollow else "white",
        )
        for name, (colour, marker) in looks.items()
    ]


def legend(figure: Figure, handles: Sequence[Any], *, columns: int = 6) -> None:
    """Draw a legend above a figure's panels, in as many rows as keep it no wider than the figure. `columns`: entries in
    a row, at most."""
    for beside in range(min(columns, len(handles)), 0, -1):
        made = figure.legend(
            handles=list(handles),
            loc="outside upper left",
            ncols=beside,
            handletextpad=0.4,
            columnspacing=1.4,
            borderpad=0.1,
        )
        if made.get_window_extent().width <= figure.bbox.width or beside == 1:
            return
        made.remove()


def key(axes: Axes, colours: Mapping[str, Any]) -> None:
    """Draw a legend of a panel's lines inside the panel, at the place where it covers least: matplotlib's own place
    "best" ignores intervals. `colours`: name of a line -> its colour."""
    made = axes.legend(
        handles=[Line2D([], [], color=colour, linewidth=1.8, label=name) for name, colour in colours.items()],
        loc="lower left",
        fontsize=text(LABEL_SIZE),
        labelspacing=0.25,
        handlelength=0.9,
        borderpad=0.0,
    )
    axes.figure.draw_without_rendering()  # type: ignore[union-attr]
    drawn = [np.asarray(line.get_xydata()) for line in axes.get_lines() if line.get_transform() == axes.transData]
    drawn += [part for lines in axes.findobj(LineCollection) for part in lines.get_segments()]  # type: ignore[attr-defined]
    lines = [_between(axes.transData.transform(line)) for line in drawn if len(line)]
    markers = [axes.transData.transform(dots.get_offsets()) for dots in axes.findobj(PathCollection)]  # type: ignore[attr-defined]
    points = np.concatenate([np.empty((0, 2)), *lines, *(np.repeat(at, MARKER, axis=0) for at in markers)])

    def covered(place: Any) -> int:
        made.set_loc(place)
        return _covered(made.get_window_extent(), points)

    made.set_loc(min(PLACES, key=covered))


def wrapped(title: str, columns: int) -> str:
    """Return a panel's title in lines that its panel has room for, if `columns` panels stand beside each other."""
    room = current().width / columns - AXIS_ROOM if columns > 1 else current().single[0]
    return textwrap.fill(
        title,
        max(MIN_LINE_LETTERS, int(72 * room / (TITLE_LETTER * text(THEME["axes.titlesize"])))),
        break_on_hyphens=False,
    )


def wrap_labels(figure: Figure) -> None:
    """Break titles and labels that are longer than their panel into lines. Where the labels of ticks touch, leave out
    every second tick of a logarithmic axis, or write the labels smaller. In the style of the page everything fits, and
    nothing is changed."""
    if current() is PAGE:
        return
    figure.draw_without_rendering()
    for axes in figure.axes:
        panel = axes.get_window_extent()
        names = [tick.get_window_extent() for tick in axes.get_xticklabels() if tick.get_text()]
        if any(b.x0 - a.x1 < NAME_GAP for a, b in pairwise(names)):
            if axes.get_xscale() == "log":
                axes.set_xticks(axes.get_xticks()[::2])
            else:
                axes.tick_params(axis="x", labelsize=text(LABEL_SIZE))
        for label, side in ((axes.yaxis.label, "height"), (axes.xaxis.label, "width"), (axes._left_title, "width")):  # type: ignore[attr-defined]
            taken = getattr(label.get_window_extent(), side)
            if label.get_visible() and taken > getattr(panel, side) > 0:
                said = label.get_text().split("\n")
                longest = max(map(len, said))
                letters = max(MIN_LINE_LETTERS, int(getattr(panel, side) / taken * longest))
                lines = [" ".join(said)] if label is axes._left_title else said  # type: ignore[attr-defined]
                label.set_text("\n".join(textwrap.fill(line, letters) for line in lines))


def name_toggles(figure: Figure) -> None:
    """Give each entry of the legend an id in the SVG: "toggle.", its colour, and its quoted name. With these ids, the
    page hides and shows what is drawn in that colour. If no entry has a colour, the labels inside the panels get ids
    instead. Colours that two names share get none, and neither do figures with parts that are bitmaps."""
    if any(artist.get_rasterized() for artist in figure.findobj()):
        return
    entries = [pair for legend in figure.legends for pair in zip(legend.legend_handles, legend.texts, strict=True)]
    named = [(text, hue) for handle, text in entries if handle is not None and (hue := _hue(handle))]
    labels = [text for axes in figure.axes for text in axes.texts if text.get_text()]
    named = named or [(text, hue) for text in labels if (hue := _hue(text))]
    often = Counter(hue for _, hue in named)
    for text, hue in named:
        if often[hue] == 1:
            text.set_gid(f"toggle.{hue}.{quote(text.get_text())}")


def _hue(artist: Any) -> str:
    """Return the colour of a matplotlib artist as six hexadecimal digits; "" for black and grey, which belong to no
    family."""
    colour = artist.get_facecolor() if hasattr(artist, "get_facecolor") else artist.get_color()
    return to_hex(colour)[1:] if len({*to_rgb(colour)}) > 1 else ""


def name_points(
    axes: Axes,
    named: Sequence[tuple[float, float, str, Any]],
    *,
    curves: Sequence[Sequence[tuple[float, float]]] = (),
) -> None:
    """Write names beside points, each in its colour, where they cover as little as possible, and never each other. A
    name for which there is no free place is left out.

    Args:
        named: (x, y, text, colour) of each name, with x and y of its point in data coordinates.
        curves: what else is drawn and better not covered: each curve is a sequence of points (x, y), joined by lines.
    """
    size = LABEL_SIZE if len(named) > MAX_LARGE_NAMES else float(THEME["legend.fontsize"])
    figure: Any = axes.get_figure(root=True)
    wrap_labels(figure)
    figure.draw_without_rendering()
    frame, taken = axes.get_window_extent(), [text.get_window_extent() for text in axes.texts]
    drawn = [axes.transData.transform(curve) for curve in curves if len(curve)]
    points = np.concatenate([axes.transData.transform([(x, y) for x, y, *_ in named]), *drawn])
    lines = np.concatenate([np.empty((0, 2)), *map(_between, drawn)])
    for x, y, name, colour in sorted(named, key=lambda point: -point[0]):  # at the right there is least room
        label = axes.annotate(
            name,
            (x, y),
            xytext=(0, 0),
            textcoords="offset points",
            color=colour,
            fontsize=text(size),
            zorder=6,
            bbox=BEHIND_TEXT,
        )
        label.set_in_layout(False)
        places = []
        for distance in (NEAR, FAR, FARTHER):
            for order, direction in enumerate(DIRECTIONS):
                box = _box(label, direction, distance)
                inside = frame.x0 <= box.x0 and box.x1 <= frame.x1 + 1 and frame.y0 <= box.y0 and box.y1 <= frame.y1 + 4
                if not inside or any(box.padded(NAME_GAP).overlaps(other) for other in taken):
                    continue
                cost = COVERS_POINT * _covered(box, points) + COVERS_LINE * _covered(box, lines) + order
                if distance > NEAR:
                    cost += COVERS_POINT * _crossed(axes.transData.transform((x, y)), label, points)
                places.append((cost + STANDS_FAR * distance, direction, distance, box))
        if not places:
            label.remove()
            continue
        _, direction, distance, box = min(places, key=lambda place: place[0])
        _box(label, direction, distance)
        taken.append(box)
        if distance > NEAR:
            line = {"arrowstyle": "-", "color": colour, "linewidth": 0.7, "shrinkA": 0, "shrinkB": 3}
            axes.annotate("", (x, y), xytext=label.get_position(), textcoords="offset points", arrowprops=line)


def name_ends(axes: Axes, ends: Sequence[tuple[float, float, str, Any]]) -> list[Annotation]:
    """Write the names of lines at the right edge of a panel, one below the other in the order of the lines' last
    points, each joined to its point by a thin line. Return the names' matplotlib annotations.

    Args:
        ends: (x, y, name, colour) of each line's last point, in data coordinates.
    """
    figure: Any = axes.get_figure(root=True)
    wrap_labels(figure)
    figure.draw_without_rendering()
    size, point = float(THEME["legend.fontsize"]), figure.dpi / 72
    ordered = sorted(ends, key=lambda end: end[1])
    at = axes.transData.transform([end[:2] for end in ordered]) / point
    high = LINE_HEIGHT * text(size) * np.array([end[2].count("\n") + 1 for end in ordered])
    least = np.cumsum(high) - high / 2  # points from below the first name to the middle of each
    up = np.maximum.accumulate(at[:, 1] - least) + least - at[:, 1]
    right = axes.get_window_extent().x1 / point - at[:, 0]
    labels = list[Annotation]()
    for (x, y, name, colour), place in zip(ordered, np.stack([right, up - up.mean()], axis=1), strict=True):
        label = axes.annotate(
            name,
            (x, y),
            tuple(np.round(place, 1)),
            textcoords="offset points",
            color=colour,
            fontsize=text(size),
            ha="right",
            va="center",
            zorder=6,
            arrowprops={"arrowstyle": "-", "color": colour, "linewidth": 0.7, "shrinkA": 0, "shrinkB": 3},
        )
        label.set_in_layout(False)
        labels.append(label)
    return labels


def _between(curve: np.ndarray) -> np.ndarray:
    """Return the points of a polyline, (N, 2) in pixels, and further points along it, two pixels apart."""
    parts = [np.linspace(a, b, 2 + int(math.dist(a, b) / 2)) for a, b in pairwise(curve)]
    return np.concatenate([curve, *parts])


def _box(label: Any, direction: tuple[int, int], distance: int) -> Bbox:
    """Move a label away from its point, by `distance` (in points) in a direction of `DIRECTIONS`. Return the box that
    it then covers, in pixels."""
    (right, up), short = direction, distance * 0.75
    offset = (distance * right, distance * up) if 0 in direction else (short * right, short * up)
    label.set(position=offset, horizontalalignment=ALIGNED[right][0], verticalalignment=ALIGNED[up][1])
    return label.get_window_extent()


def _covered(box: Bbox, points: np.ndarray) -> int:
    x, y = points.T
    return int(np.sum((x > box.x0 - 2) & (x < box.x1 + 2) & (y > box.y0) & (y < box.y1)))


def _crossed(start: np.ndarray, label: Any, points: np.ndarray) -> int:
    """Return how many of `points` lie on the thin line that joins a label to its own point, which is at `start` (all in
    pixels)."""
    end = label.get_transform().transform(label.get_position())
    way, off = end - start, points - start
    along = off @ way / (way @ way)
    aside = np.abs(off[:, 0] * way[1] - off[:, 1] * way[0]) / math.sqrt(way @ way)
    return int(np.sum((aside < ON_LINE) & (along < 1) & (np.hypot(*off.T) > ON_LINE) & (along > 0)))


def plain_log_x(
    axes: Axes, values: Sequence[float], *, text: Callable[[float], str] | None = None, room: float = 0.0
) -> None:
    """Make x logarithmic around `values`, with ticks at plain numbers: at the values themselves if they are few and far
    apart, else at 1, 2, 5 or at 1, 3 or at powers of ten.

    Args:
        text: formats the number of a tick; None: `tick_text`, where one has five digits.
        room: fraction of the axis to leave free at the right.
    """
    span = max(values) / min(values)
    margin = max(1.3, span**0.04)  # 4 % of a long axis
    low, high = min(values) / margin, max(values) * margin
    axes.set_xscale("log")
    axes.set_xlim(low, high * (high / low) ** (room / (1 - room)))
    distinct = sorted(set(values))
    spaced = all(b / a > (high / low) ** 0.14 for a, b in pairwise(distinct))
    ticks = distinct if len(distinct) <= 6 and spaced else _round_ticks(low, high, distinct)
    _plain(axes.xaxis, ticks, text)


def plain_log_y(axes: Axes, *, text: Callable[[float], str] | None = None) -> None:
    """Make y logarithmic, with ticks at 1, 2, 5, or more or fewer of them if the axis spans less or more. `text`:
    formats the number of a tick; None: `tick_text`, where one has five digits."""
    axes.set_yscale("log")
    low, high = axes.get_ylim()
    steps = (1,) if high > 200 * low else (1, 2, 5) if high > 20 * low else (1, 1.5, 2, 3, 4, 5, 6, 8)
    ticks = [tick for tick in LogLocator(subs=steps, numticks=30).tick_values(low, high) if low <= tick <= high]
    _plain(axes.yaxis, ticks, text)


def _plain(axis: Any, ticks: Sequence[float], text: Callable[[float], str] | None) -> None:
    """Set the ticks of a matplotlib axis. `text`: formats the number of a tick; None: plain numbers with four digits,
    or `tick_text` where one has five digits before the point."""
    shown = text or (tick_text if max(ticks, default=0) >= 1e4 else lambda value: significant(value, 4))
    axis.set_major_locator(FixedLocator(ticks))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: shown(value)))
    axis.set_minor_formatter(NullFormatter())


def _round_ticks(low: float, high: float, values: Sequence[float]) -> list[float]:
    """Return at most six round numbers between `low` and `high` for ticks: of the series 1, 2, 5 and 1, 3 and powers of
    ten, the one that most of `values` belong to; of equally good ones, the finest."""
    decades = np.arange(np.floor(np.log10(low)), np.ceil(np.log10(high)) + 1)
    tried = [
        [m * 10.0**d for d in decades for m in mantissas if low <= m * 10.0**d <= high]
        for mantissas in ((1, 2, 5), (1, 3), (1,))
    ]
    fitting = [ticks for ticks in tried if len(ticks) <= 6]
    if not fitting:
        return tried[-1][:: -(-len(tried[-1]) // 6)]
    return max(fitting, key=lambda ticks: (sum(bool(np.isclose(ticks, v).any()) for v in values), len(ticks)))


def tick_text(value: float) -> str:
    """Return a short plain number as text: 0.3, 10, 3k, 30M, 1E (for 1e18)."""
    for scale, unit in ((1e21, "Z"), (1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= scale:
            return f"{significant(value / scale, 2 if value < 100 * scale else 3)}{unit}"
    return significant(value, 2 if value < 100 else 3)


def percent_range(low: Sequence[float], values: Sequence[float], high: Sequence[float]) -> tuple[float, float]:
    """Return (lower, upper) limits of an axis in percent that hold all values. They hold their intervals too, except
    where these are much wider than the range of the values, so that one wide interval does not flatten all else."""
    least, most = min(values), max(values)
    reach = max(0.4 * (most - least), 12.0)
    bottom, top = max(min(low), least - reach), min(max(high), most + reach)
    margin = 0.05 * (top - bottom) or 1.0
    return max(0.0, bottom - margin), min(100.5, top + (2 * margin if top < 90 else margin))


def arrows_where_cut(
    axes: Axes, x: Sequence[float], low: Sequence[float], high: Sequence[float], colours: Sequence[Any]
) -> None:
    """Draw an arrow head at the edge of a panel for every interval (`low` to `high` at `x`) that goes beyond it."""
    bottom, top = axes.get_ylim()
    for place, least, most, colour in zip(x, low, high, colours, strict=True):
        for cut, edge, head in ((least < bottom, bottom, "v"), (most > top, top, "^")):
            if cut and not math.isnan(place):
                axes.plot(
                    place,
                    edge,
                    linestyle="",
                    marker=head,
                    color=colour,
                    markersize=6,
                    markeredgewidth=0,
                    clip_on=False,
                    zorder=5,
                )
