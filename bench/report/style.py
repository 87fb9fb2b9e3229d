"""Styles of figures, which are sizes of the figures and of their text: for the page, for a paper's columns, for a
slide."""

from __future__ import annotations

import argparse
from dataclasses import dataclass

PAPER_WIDTHS = (3.25, 5.5, 6.75)  # inches: a column of two, a page of one column, a page of two


@dataclass(frozen=True, kw_only=True)
class Style:
    """Sizes of figures in inches, and of their text in points.

    Attributes:
        name: the style's name, as --style takes it.
        width: width of several panels beside each other.
        single: (width, height) of one panel.
        panel_height: height of each row of panels.
        columns: panels beside each other, at most.
        scale: factor on the sizes that text has on the page.
        least: the smallest size of text.
        fixed: whether every figure is as wide as `width`, whatever it asks for.
        ratio: width / height of every figure; 0: a figure is as high as it asks for.
        png: whether a PNG is made beside the SVG.
        pdf: whether a PDF is made.
    """

    name: str
    width: float
    single: tuple[float, float]
    panel_height: float
    columns: int = 3
    scale: float = 1.0
    least: float = 0.0
    fixed: bool = True
    ratio: float = 0.0
    png: bool = True
    pdf: bool = False

    def text(self, points: float) -> float:
        """Return the font size, in points, that a text of size `points` on the page has in this style."""
        return max(self.least, self.scale * points)

    def width_of(self, columns: int) -> float:
        """Return the width, in inches, of a figure with so many panels beside each other."""
        return self.width if columns > 1 else self.single[0]

    def size(self, width: float, height: float) -> tuple[float, float]:
        """Return the (width, height) in inches that a figure has in this style if it asks for these."""
        width = self.width if self.fixed else width
        return width, width / self.ratio if self.ratio else height


def _paper(width: float) -> Style:
    return Style(
        name=f"paper:{width:g}",
        width=width,
        single=(width, 0.85 * width),
        panel_height=2.1,
        columns=int(width / 2),
        scale=0.0,  # one size for all text
        least=8.0,
        pdf=True,
    )


PAGE = Style(  # `single`: legible on a phone, beside a table and in a README
    name="page", width=9.0, single=(5.8, 4.3), panel_height=2.9, fixed=False
)
PHONE = Style(  # a page as narrow as a phone uses only the SVG
    name="phone", width=4.0, single=(4.0, 3.4), panel_height=2.6, columns=1, png=False
)
SLIDE = Style(
    name="slide", width=40 / 3, single=(40 / 3, 7.5), panel_height=3.5, columns=4, scale=1.45, least=12.0, ratio=16 / 9
)
STYLES = {style.name: style for style in (PAGE, *map(_paper, PAPER_WIDTHS), SLIDE)}


def style_named(name: str) -> Style:
    """Return the style that a name given with --style stands for; "paper" stands for the narrowest column of a paper.

    Raises:
        argparse.ArgumentTypeError: there is no style of this name.
    """
    found = STYLES.get(f"paper:{PAPER_WIDTHS[0]:g}" if name == "paper" else name)
    if found is None:
        raise argparse.ArgumentTypeError(f"{name!r} is no style: there are paper, {', '.join(STYLES)}.")
    return found
