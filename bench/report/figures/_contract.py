"""What a figure file provides, and how a figure is saved.

A figure is one file in bench/report/figures/ (a name that does not start with "_") with

    TITLE: str                                   # one line, shown above the figure
    def draw(evidence: Evidence) -> Drawing      # raises NothingToDraw("why") if the records hold nothing for it

It reads records through `bench.analysis.evidence.Evidence` alone (`evidence.records.records` are the records,
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

from bench.report.figures import _style

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MAX_HOVER_POINTS = 2_000  # of one figure
CSV_DIGITS = 8  # significant; further ones differ between processors


class NothingToDraw(Exception):
    """The records hold nothing for this figure; the message names what is missing."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Annotation:
    """A plotted point that the report explains when it is pointed at.

    Attributes:
        axes, x, y: where it was drawn, in data coordinates.
        text: lines about the run and its score; a function where there are many points.
        cells: names of the cells behind it; a click shows their records.
    """

    axes: Axes
    x: float
    y: float
    text: str | Callable[[], str]
    cells: tuple[str, ...] = ()

    @property
    def lines(self) -> str:
        return self.text if isinstance(self.text, str) else self.text()


@dataclass(frozen=True, kw_only=True, eq=False)
class Drawing:
    """A drawn figure.

    Attributes:
        figure: not yet saved.
        data: every number that is plotted, one row per point; written beside the figure as CSV.
        caption: what is shown, n, shots, what the intervals contain, the kinds of images. Plain text.
        alt: one sentence for those who cannot see the figure.
        annotations: what can be pointed at.
    """

    figure: Figure
    data: pd.DataFrame
    caption: str
    alt: str
    annotations: tuple[Annotation, ...] = ()


@dataclass(frozen=True, kw_only=True)
class HoverPoint:
    """An annotation's place on the finished picture, as shares of its width and height from the top left."""

    x: float
    y: float
    text: str
    cells: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Saved:
    """Bytes of a figure's files. Equal drawings give equal bytes: no dates, versions or random ids inside.

    `folder`, in the study's, is where they lie.
    `hover_points` are the `annotations` (a number) that the page explains; `width` is in inches.
    """

    name: str
    title: str
    caption: str
    alt: str
    png: bytes
    svg: str
    csv: str
    width: float
    hover_points: tuple[HoverPoint, ...] = ()
    annotations: int = 0
    folder: str = "figures"

    def files(self, folder: Path) -> dict[Path, bytes]:
        """File name to content."""
        return {
            folder / f"{self.name}.png": self.png,
            folder / f"{self.name}.svg": self.svg.encode(),
            folder / f"{self.name}.csv": self.csv.encode(),
        }


def render(name: str, title: str, drawing: Drawing) -> Saved:
    """PNG, SVG and CSV of a drawing."""
    with _style.context():
        png, svg = io.BytesIO(), io.StringIO()
        drawing.figure.savefig(png, format="png", dpi=_style.DPI, metadata={"Software": None})
        drawing.figure.set_layout_engine(None)  # arranged once; both files are the same picture
        hover_points = _hover_points(drawing)
        nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        drawing.figure.savefig(svg, format="svg", metadata=nothing)
    return Saved(
        name=name,
        title=title,
        caption=drawing.caption,
        alt=drawing.alt,
        png=png.getvalue(),
        svg=_short(svg.getvalue()),
        hover_points=hover_points,
        annotations=len(drawing.annotations),
        csv=drawing.data.to_csv(index=False, lineterminator="\n", float_format=f"%.{CSV_DIGITS}g"),
        width=float(drawing.figure.get_figwidth()),
    )


def _short(svg: str) -> str:
    """Without comments; coordinates in hundredths of a point: what lies beyond differs between processors, and with it
    matplotlib's names of clip paths, which are numbered instead."""
    text = re.sub(r"<!--.*?-->\s*", "", svg, flags=re.DOTALL)
    text = re.sub(
        r'(?<=\s)(?:d|x|y|x1|x2|y1|y2)="[^"]*"|translate\([^)]*\)',
        lambda found: re.sub(r"-?\d+\.\d{3,}", lambda n: f"{float(n[0]):.2f}", found[0]),
        text,
    )
    names: dict[str, str] = {}
    text = re.sub(
        r'(?<=url\(#)p\w{10}(?=\))|(?<=<clipPath id=")p\w{10}(?=")',
        lambda found: names.setdefault(found[0], f"clip{len(names) + 1}"),
        text,
    )
    return "\n".join(line.rstrip() for line in text.splitlines()) + "\n"


def _hover_points(drawing: Drawing) -> tuple[HoverPoint, ...]:
    """Where the annotations are on the picture, once everything has its place; thinned evenly beyond the maximum."""
    step = -(-len(drawing.annotations) // MAX_HOVER_POINTS) or 1
    width, height = drawing.figure.bbox.width, drawing.figure.bbox.height
    found = []
    for item in drawing.annotations[::step]:
        x, y = item.axes.transData.transform((item.x, item.y))
        place = round(float(x) / width, 4), round(1 - float(y) / height, 4)
        found.append(HoverPoint(x=place[0], y=place[1], text=item.lines, cells=item.cells))
    return tuple(found)
