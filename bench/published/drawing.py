"""Lines, markers and axes that figures of published networks share. A controlled comparison (one in which nothing else
differs than the networks, or than their training images) has solid lines, any other comparison dashed lines."""

from __future__ import annotations

from typing import Any

from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from bench.analysis.evidence import Evidence
from bench.published.matched import Comparison, compared
from bench.published.public_evidence import SOURCE, is_public
from bench.report.figures import _style
from bench.report.figures.figure import NothingToDraw

UPSTREAM = {
    "ImageNet-1k": ("1.28M images (ImageNet-1k)", _style.COLOURS[9]),
    "ImageNet-21k": ("12M to 38M (ImageNet-21k)", _style.COLOURS[1]),
    "web": ("0.4 to 2.3 billion (web)", _style.COLOURS[4]),
}
"""Group of pre-training sets -> (label, colour)."""
DOT = {"marker": "o", "linestyle": ""}
ERRORS = (5, 10, 12, 14, 16, 18, 20, 25, 30, 40, 60, 80, 100)  # percent: ticks of a logarithmic axis
QUOTED = f"Published numbers ({SOURCE}); nothing was measured here."


def expect_compared(evidence: Evidence) -> tuple[Comparison, ...]:
    """Return the comparisons of published families at equal error that belong to the evidence (see `compared`).

    Raises:
        NothingToDraw: there are none, because the evidence is not that of published networks.
    """
    asked = compared(evidence)
    if not asked:
        raise NothingToDraw("it shows published networks (--suite published, --suite paper)")
    return asked


def expect_public(evidence: Evidence) -> None:
    """Raise NothingToDraw if the evidence is not that of published networks."""
    if not is_public(evidence):
        raise NothingToDraw("it shows published networks (--suite published)")


def look(colour: str, *, controlled: bool) -> dict[str, Any]:
    """Return matplotlib's settings for the lines and markers of a comparison: solid if it is controlled, else dashed
    and hollow."""
    if controlled:
        return {"color": colour, "linestyle": "-", "markerfacecolor": colour, "markeredgecolor": "white"}
    return {"color": colour, "linestyle": "--", "markerfacecolor": "white", "markeredgecolor": colour}


def signs() -> list[Line2D]:
    """Return the entries of a legend that explain solid and dashed lines."""
    made = {"controlled: one paper, one recipe": True, "not controlled: recipes differ": False}
    return [
        Line2D([], [], marker="o", label=label, **look(_style.INK, controlled=kind)) for label, kind in made.items()
    ]


def upstream_handles(*, hollow: bool = False) -> list[Line2D]:
    """Return the entries of a legend for the groups of pre-training sets in UPSTREAM; with `hollow`, their markers are
    not filled."""
    dots = ((label, look(colour, controlled=not hollow)) for label, colour in UPSTREAM.values())
    return [Line2D([], [], label=label, **(dot | DOT)) for label, dot in dots]


def error_axis(axes: Axes, *, label: str) -> None:
    """Make the y axis a logarithmic axis of errors in percent, with plain numbers."""
    axes.set_yscale("log")
    low, high = axes.get_ylim()
    ticks = [tick for tick in ERRORS if low <= tick <= high]
    axes.set_yticks(ticks, [str(tick) for tick in ticks])
    axes.minorticks_off()
    axes.set_ylabel(label)
