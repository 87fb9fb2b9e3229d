"""One look for all figures: colour and marker by family, plain numbers on log axes, sizes legible in a README."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal

import matplotlib
import numpy as np
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter, NullLocator

from bench.core.formatting import significant

if TYPE_CHECKING:
    from matplotlib.axes import Axes

DPI = 144
WIDTH = 11.0  # inches; a README shows it about 830 px wide, so 11 pt text stays legible
PIXELS: dict[str, Any] = {"color": "#000000", "linestyle": "-.", "linewidth": 1.2}
PUBLISHED_COLOUR = "#8A8A8A"
FAMILIES = {  # Okabe-Ito colours, distinct with any colour vision; markers for print
    "ViT": ("#0072B2", "o"),
    "Hybrid": ("#009E73", "^"),
    "ResNet": ("#D55E00", "s"),
}
SPARE = (("#CC79A7", "D"), ("#E69F00", "v"), ("#56B4E9", "P"), ("#F0E442", "X"), ("#7F7F7F", "<"))
DASHES: tuple[Literal["-"] | tuple[float, Sequence[float]], ...] = (
    "-",
    (0, (5, 2)),
    (0, (1, 1.5)),
    (0, (5, 2, 1, 2)),
    (0, (3, 1, 1, 1, 1, 1)),
    (0, (8, 3)),
)
FILLS: tuple[Literal["full", "left", "bottom", "right", "top"], ...] = ("full", "left", "bottom", "right", "top")
SAME_SIZE = 1.0  # points of diameter: markers that differ by less look alike
ALIASES = (
    ("hybrid", "Hybrid"),
    ("r+vit", "Hybrid"),
    ("resnet+vit", "Hybrid"),
    ("bit", "ResNet"),
    ("resnet", "ResNet"),
    ("vit", "ViT"),
)
RC = {
    "svg.hashsalt": "vit-scaling-bench",
    "svg.fonttype": "path",
    "font.family": "DejaVu Sans",
    "font.size": 11,
    "axes.titlesize": 12,
    "axes.labelsize": 11,
    "xtick.labelsize": 10,
    "ytick.labelsize": 10,
    "legend.fontsize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#444444",
    "axes.grid": True,
    "grid.color": "#E4E4E4",
    "grid.linewidth": 0.7,
    "axes.axisbelow": True,
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
    "legend.frameon": False,
}


@contextmanager
def context() -> Iterator[None]:
    """The house's settings on top of matplotlib's defaults, regardless of the user's own configuration."""
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        for name, value in RC.items():
            matplotlib.rcParams[name] = value  # type: ignore[index]
        yield


def figure(*, height: float, width: float = WIDTH) -> Figure:
    """An empty figure that arranges its panels so that nothing overlaps. Sizes in inches."""
    made = Figure(figsize=(width, height), layout="constrained")
    made.get_layout_engine().set(h_pad=0.09, w_pad=0.09)  # type: ignore[union-attr,call-arg]
    return made


def look(family: str, families: Iterable[str]) -> tuple[str, str]:
    """Colour and marker of a family. `families` are all families shown: unknown ones take spare looks in order."""
    lowered = family.lower()
    for start, known in ALIASES:
        if lowered.startswith(start):
            return FAMILIES[known]
    unknown = sorted(f for f in set(families) if not any(f.lower().startswith(start) for start, _ in ALIASES))
    return SPARE[unknown.index(family) % len(SPARE)] if family in unknown else SPARE[-1]


def faces(colour: str, *, hollow: bool) -> dict[str, Any]:
    """Face and edge of a marker; published points are hollow."""
    face, edge = ("white", colour) if hollow else (colour, "white")
    return {"markerfacecolor": face, "markeredgecolor": edge}


def family_handle(family: str, families: Iterable[str], *, hollow: bool, **line: Any) -> Line2D:
    """A family's entry in a legend."""
    colour, marker = look(family, families)
    return Line2D([], [], color=colour, marker=marker, label=family, **faces(colour, hollow=hollow), **line)


def shade(colour: str, number: int, members: int) -> tuple[float, float, float]:
    """The colour of member `number` of a family's `members`: from light over the family's own to dark."""
    place = 1.0 if members == 1 else number / (members - 1)
    base = np.asarray(to_rgb(colour))
    mixed = base + (1 - base) * 0.55 * (1 - place) if place < 1 else base * 0.8
    red, green, blue = (float(value) for value in mixed)
    return red, green, blue


def marker_sizes(values: Sequence[float]) -> list[float]:
    """Marker diameters in points, by the logarithm of `values`."""
    smallest, largest = 4.5, 10.5
    logs = np.log(np.maximum(np.nan_to_num(np.asarray(values, dtype=float), nan=1.0), 1.0))
    span = float(np.ptp(logs)) if len(logs) else 0.0
    if span == 0:
        return [(smallest + largest) / 2] * len(logs)
    return [float(smallest + (largest - smallest) * (v - logs.min()) / span) for v in logs]


def apart(lines: Sequence[tuple[str, float]]) -> list[int]:
    """For lines of (family, marker size), how to set those apart that would look alike: 0, or a number for DASHES and
    FILLS."""
    chosen: list[int] = []
    for number, (family, size) in enumerate(lines):
        taken = {chosen[i] for i in range(number) if lines[i][0] == family and abs(lines[i][1] - size) < SAME_SIZE}
        chosen.append(next(style for style in range(number + 1) if style not in taken) % len(FILLS))
    return chosen


def plain_log_x(axes: Axes, values: Sequence[float], *, text: Callable[[float], str] | None = None) -> None:
    """A logarithmic x axis around `values` with plain numbers (`tick_text`, or `text`): at the values themselves if
    they are few and spaced, else at 1, 2, 5 or 1, 3 or powers of ten."""
    shown = text or tick_text
    margin = max(1.3, (max(values) / min(values)) ** 0.04)  # 4 % of a long axis
    low, high = min(values) / margin, max(values) * margin
    axes.set_xscale("log")
    axes.set_xlim(low, high)
    distinct = sorted(set(values))
    spaced = all(b / a > (high / low) ** 0.14 for a, b in pairwise(distinct))
    ticks = distinct if len(distinct) <= 6 and spaced else _round_ticks(low, high, distinct)
    axes.xaxis.set_major_locator(FixedLocator(ticks))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: shown(value)))
    axes.xaxis.set_minor_formatter(NullFormatter())


def _round_ticks(low: float, high: float, values: Sequence[float]) -> list[float]:
    """Round numbers, of those that fit the ones at which most of `values` lie; the finest where that is even."""
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
    """A short plain number: 0.3, 10, 3k, 30M, 1E."""
    for scale, unit in ((1e21, "Z"), (1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= scale:
            return f"{significant(value / scale, 2 if value < 100 * scale else 3)}{unit}"
    return significant(value, 2 if value < 100 else 3)
