"""What a figure file provides, and how a figure is saved.

A figure is one file in bench/report/figures/ (a name that does not start with "_") with

    TITLE: str                                   # one line, shown above the figure
    def draw(evidence: Evidence) -> Drawing      # raises NothingToDraw("why") if the records hold nothing for it

It reads records through `bench.analysis.evidence.Evidence` alone (`evidence.records.records` are the raw dictionaries,
`evidence.horizons` and `evidence.scores` tidy tables) and draws on a `matplotlib.figure.Figure` from `_style.figure`,
never through pyplot, so that drawing needs no display and leaves no state behind.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


MAX_SPOTS = 2_000  # marks of one figure that answer to the pointer


class NothingToDraw(Exception):
    """The records hold nothing for this figure; the message says what is missing."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Mark:
    """A mark that the report explains when it is pointed at.

    Attributes:
        axes, x, y: where it was drawn, in data coordinates.
        text: what is shown: lines about the run and its score; a function, where there are many marks.
        cells: names of the cells behind it; a click shows their records.
    """

    axes: Axes
    x: float
    y: float
    text: str | Callable[[], str]
    cells: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, eq=False)
class Drawing:
    """A drawn figure.

    Attributes:
        figure: not yet saved.
        data: every number that is plotted, one row per mark; written beside the figure as CSV.
        caption: what is shown, n, shots, what the intervals contain, the kinds of images. Plain text.
        alt: one sentence for those who cannot see the figure.
        marks: what can be pointed at.
    """

    figure: Figure
    data: pd.DataFrame
    caption: str
    alt: str
    marks: tuple[Mark, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Spot:
    """A mark's place on the finished picture, as shares of its width and height from the top left."""

    x: float
    y: float
    text: str
    cells: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Saved:
    """Bytes of a figure's files. Equal drawings give equal bytes: no dates, versions or random ids inside.

    `spots` are the marks that answer to the pointer, `marks` is how many there are.
    """

    name: str
    title: str
    caption: str
    alt: str
    png: bytes
    svg: str
    csv: str
    spots: tuple[Spot, ...] = ()
    marks: int = 0

    def files(self, folder: Path) -> dict[Path, bytes]:
        """File name to content."""
        return {
            folder / f"{self.name}.png": self.png,
            folder / f"{self.name}.svg": self.svg.encode(),
            folder / f"{self.name}.csv": self.csv.encode(),
        }


def render(name: str, title: str, drawing: Drawing) -> Saved:
    """PNG, SVG and CSV of a drawing."""
    from bench.report.figures import _style

    with _style.context():
        png, svg = io.BytesIO(), io.StringIO()
        drawing.figure.savefig(png, format="png", dpi=_style.DPI, metadata={"Software": None})
        drawing.figure.set_layout_engine(None)  # arranged once; both files are the same picture
        spots = _spots(drawing)
        nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        drawing.figure.savefig(svg, format="svg", metadata=nothing)
    text = re.sub(r"<!--.*?-->\s*", "", svg.getvalue(), flags=re.DOTALL)
    text = "\n".join(line.rstrip() for line in text.splitlines()) + "\n"
    return Saved(
        name=name, title=title, caption=drawing.caption, alt=drawing.alt, png=png.getvalue(), svg=text,
        csv=drawing.data.to_csv(index=False, lineterminator="\n"), spots=spots,
        marks=len(drawing.marks),
    )  # fmt: skip


def _spots(drawing: Drawing) -> tuple[Spot, ...]:
    """Where the marks are on the picture, once everything has its place; thinned evenly beyond `MAX_SPOTS`."""
    step = -(-len(drawing.marks) // MAX_SPOTS) or 1
    width, height = drawing.figure.bbox.width, drawing.figure.bbox.height
    found = []
    for mark in drawing.marks[::step]:
        text = mark.text if isinstance(mark.text, str) else mark.text()
        x, y = mark.axes.transData.transform((mark.x, mark.y))
        found.append(Spot(x=round(x / width, 4), y=round(1 - y / height, 4), text=text, cells=mark.cells))
    return tuple(found)
