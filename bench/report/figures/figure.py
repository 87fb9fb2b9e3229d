"""The types that a figure file provides, and how a figure is saved.

A figure is one file in bench/report/figures/ (a name that does not start with "_") with

    def draw(evidence: Evidence) -> Drawing      # raises NothingToDraw("why") if the records hold nothing for it
    FIGURE = Figure(title="one line, shown above the figure", draw=draw)

It reads records through `bench.analysis.evidence.Evidence` alone (`evidence.records.records` are the records,
`evidence.horizons` and `evidence.scores` tidy tables) and draws with seaborn on a `matplotlib.figure.Figure` from
`_style.figure`, never on pyplot's current figure, so that drawing needs no display and leaves no state behind.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote
from xml.sax.saxutils import escape

from bench.analysis.table import frame_csv
from bench.report.style import PAGE, PHONE, Style

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas
    from matplotlib.transforms import Bbox

    from bench.analysis.evidence import Evidence

MAX_HOVER_POINTS = 2_000  # points of one figure that can be pointed at
HOVER_AREA = 14.0  # points: diameter of the area around a plotted point that reacts to the pointer
MAX_NARROW_INCHES = 7.5  # inches up to which a figure stands beside a page's answers
CSV_DIGITS = 8  # significant digits; further digits differ between processors


class NothingToDraw(Exception):
    """Raised if the records hold nothing for a figure; the message names what is missing."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Annotation:
    """A plotted point that shows a text while the pointer is on it.

    Attributes:
        axes: the panel in which it was drawn.
        x: its x in data coordinates.
        y: its y in data coordinates.
        text: lines about the run and its score, or a function that returns them, which saves time where there are many
            points.
        cells: names of the cells (training runs) behind the point; a click shows their records.
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
    """What a figure's `draw` returns.

    Attributes:
        figure: the matplotlib figure, not yet saved.
        data: every number that is plotted, one row per point; written beside the figure as CSV.
        caption: what is shown, n, shots, what the intervals contain, the kinds of images. It is plain text, or a tuple
            of sentences, of which report.md leaves out those that an earlier figure's caption has.
        n: seeds, samples and test images behind the figure's numbers, if all numbers have the same. It ends the
            caption, unless a page says it elsewhere.
        alt: one sentence for those who cannot see the figure.
        annotations: the points that show a text while the pointer is on them.
        by_task: a second figure, with the single tasks of the same data; None without one.
    """

    figure: Canvas
    data: pd.DataFrame
    caption: str | tuple[str, ...]
    alt: str
    n: str = ""
    annotations: tuple[Annotation, ...] = ()
    by_task: Canvas | None = None


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A figure of reports, as its file exports it.

    Attributes:
        title: one line, shown above the figure.
        draw: draws the figure from the evidence of a study; raises NothingToDraw.
    """

    title: str
    draw: Callable[[Evidence], Drawing]


@dataclass(frozen=True, kw_only=True)
class RenderedFigure:
    """Bytes of a figure's files. Equal drawings give equal bytes: no dates, versions or random ids inside.

    Attributes:
        name: name of its files, without suffix.
        title: text shown above it.
        caption: plain text, without `n`.
        n: seeds, samples and test images behind all of its numbers; "" where the caption says them, or where there is
            no n.
        alt: one sentence for those who cannot see it.
        png: the picture; b"" for the version for phones, which only the page shows.
        svg: the picture, in which each point carries its text and a link to the first record behind it.
        csv: what is plotted; "" for the second picture of a drawing, whose data are in the first one's.
        pdf: the picture with its fonts; b"" in a style without PDF.
        width: width in inches.
        cells: tuples of names of the cells behind its points; a point's link ends in the index of its tuple.
        points: number of annotations of the drawing.
        pointed: number of annotations that the SVG holds, at most `MAX_HOVER_POINTS`.
        folder: name of the folder of its files, inside the study's folder.
        stacked: the same figure with its panels below each other, for a phone; None where it has no such version.
        titled: the same figure with the study's title above it, which is saved in its files, since they stand alone;
            None where the page alone shows that title.
    """

    name: str
    title: str
    caption: str
    alt: str
    png: bytes
    svg: str
    csv: str
    width: float
    cells: tuple[tuple[str, ...], ...] = ()
    n: str = ""
    points: int = 0
    pointed: int = 0
    pdf: bytes = b""
    folder: str = "figures"
    stacked: RenderedFigure | None = None
    titled: RenderedFigure | None = None

    @property
    def explained(self) -> str:
        """The caption, ending in n."""
        return f"{self.caption} n: {self.n}." if self.n else self.caption

    def files(self, folder: Path) -> dict[Path, bytes]:
        """Return path -> content of the figure's files, if they are saved in `folder`."""
        alone = self.titled or self
        pictures = {folder / f"{self.name}.png": alone.png, folder / f"{self.name}.svg": alone.svg.encode()}
        more = {"csv": self.csv.encode(), "pdf": alone.pdf}
        return pictures | {folder / f"{self.name}.{kind}": data for kind, data in more.items() if data}


def draw(
    name: str, figure: Figure, evidence: Evidence, style: Style, *, says: str = "", mark: str = ""
) -> tuple[RenderedFigure, ...]:
    """Draw a figure in a style and return its pictures: one, or two if single tasks have a picture of their own. In the
    style of the page, each picture also has a version for phones (`stacked`).

    Args:
        name: name of the figure's files.
        says: a sentence to write above the picture; "" for none.
        mark: words to write before its title and across the picture; "" for none.
    """
    from bench.report.figures import _style

    with _style.drawn_as(style):
        made = render(name, figure.title, figure.draw(evidence), says=says, mark=mark)
    if style is not PAGE or says:
        return made
    stacked = draw(name, figure, evidence, PHONE, mark=mark)
    return tuple(replace(wide, stacked=one) for wide, one in zip(made, stacked, strict=True))


def render(name: str, title: str, drawing: Drawing, *, says: str = "", mark: str = "") -> tuple[RenderedFigure, ...]:
    """Return the pictures of a drawing as PNG, SVG and, where the style has one, PDF; its CSV is with the first.
    Arguments are those of `draw`."""
    from bench.report.figures import _style

    csv = frame_csv(drawing.data, digits=CSV_DIGITS)
    title = f"{mark} {title}".strip()
    if mark:
        for picture in filter(None, (drawing.figure, drawing.by_task)):
            _style.mark(picture, mark)
    with _style.context():
        box = _style.say(drawing.figure, says) if says else None
    saved = [_render(name, title, drawing.figure, drawing, csv, box=box)]
    if drawing.by_task is not None:
        saved.append(_render(f"{name}-by-task", f"{title}, by task", drawing.by_task, drawing, ""))
    return tuple(saved)


def _render(
    name: str, title: str, figure: Canvas, drawing: Drawing, csv: str, *, box: Bbox | None = None
) -> RenderedFigure:
    """Return one matplotlib figure of a drawing as a picture. `box`: the area to save, in inches; None: the whole
    figure."""
    from bench.report.figures import _style

    mine = [item for item in drawing.annotations if item.axes.get_figure(root=True) is figure]
    step = -(-len(mine) // MAX_HOVER_POINTS) or 1
    pointed = mine[::step]
    with _style.context():
        png, svg, pdf = io.BytesIO(), io.StringIO(), io.BytesIO()
        _style.wrap_labels(figure)
        if _style.current().png:
            figure.savefig(png, format="png", dpi=_style.DPI, bbox_inches=box, metadata={"Software": None})
        else:
            _style.arrange(figure)
        figure.set_layout_engine(None)  # the layout is computed once, so that all files show the same picture
        if _style.current().pdf:
            figure.savefig(
                pdf, format="pdf", bbox_inches=box, metadata=dict.fromkeys(("Creator", "Producer", "CreationDate"))
            )
        _style.name_toggles(figure)
        cells, areas = _hover_areas(pointed)
        figure.savefig(
            svg, format="svg", bbox_inches=box, metadata=dict.fromkeys(("Creator", "Date", "Format", "Type"))
        )
        for area in areas:
            area.remove()
    sentences = (drawing.caption,) if isinstance(drawing.caption, str) else drawing.caption
    return RenderedFigure(
        name=name,
        title=title,
        caption=" ".join(sentences),
        n=drawing.n,
        alt=drawing.alt,
        png=png.getvalue(),
        svg=_explained(_short(svg.getvalue()), pointed),
        csv=csv,
        width=float(figure.get_figwidth()),
        cells=cells,
        points=len(mine),
        pointed=len(pointed),
        pdf=pdf.getvalue(),
    )


def _hover_areas(annotations: list[Annotation]) -> tuple[tuple[tuple[str, ...], ...], list[Artist]]:
    """Lay an invisible disc with a link over every annotated point, which makes the point react to the pointer. Return
    the distinct groups of cells that points are linked to, and the discs."""
    groups: dict[tuple[str, ...], int] = {}
    by_axes: dict[Axes, list[tuple[Annotation, str]]] = {}
    for number, item in enumerate(annotations):
        group = groups.setdefault(item.cells, len(groups)) if item.cells else None
        target = f"../cells/{quote(item.cells[0], safe='+')}/record.json#{group}" if item.cells else ""
        by_axes.setdefault(item.axes, []).append((item, f"{target}?{number}"))
    made: list[Artist] = []
    for axes, items in by_axes.items():
        x, y = [item.x for item, _ in items], [item.y for item, _ in items]
        limits = axes.get_xlim(), axes.get_ylim()
        areas: Any = axes.scatter(
            x, y, s=HOVER_AREA**2, color=(0.5, 0.5, 0.5, 0.004), linewidths=0, zorder=20, clip_on=False
        )
        areas.set_urls([url for _, url in items])
        axes.set(xlim=limits[0], ylim=limits[1])
        made.append(areas)
    return tuple(groups), made


def _explained(svg: str, annotations: list[Annotation]) -> str:
    """Return the SVG in which every link has the text of its point as a title, which browsers show under the
    pointer."""

    def link(match: re.Match[str]) -> str:
        target = f' xlink:href="{match[1]}"' if match[1] else ""
        return f"<a{target}><title>{escape(annotations[int(match[2])].lines)}</title>"

    return re.sub(r'<a xlink:href="([^"?]*)\?(\d+)" target="_blank">', link, svg)


def _short(svg: str) -> str:
    """Return the SVG without comments, with coordinates rounded to hundredths of a point and clip paths numbered.
    Further digits differ between processors, and matplotlib's names of clip paths depend on them."""
    text = re.sub(r"<!--.*?-->\s*", "", svg, flags=re.DOTALL)
    text = re.sub(
        r'(?<=\s)(?:d|x|y|x1|x2|y1|y2)="[^"]*"|translate\([^)]*\)',
        lambda part: re.sub(r"-?\d+\.\d{3,}", lambda n: f"{float(n[0]):.2f}", part[0]),
        text,
    )
    names: dict[str, str] = {}
    text = re.sub(
        r'(?<=url\(#)p\w{10}(?=\))|(?<=<clipPath id=")p\w{10}(?=")',
        lambda match: names.setdefault(match[0], f"clip{len(names) + 1}"),
        text,
    )
    return "\n".join(line.strip() for line in text.splitlines()) + "\n"
