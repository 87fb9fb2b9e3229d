"""A picture of `vit-bench compare`: accuracy of B minus accuracy of A, by task, on average, and at every level of
compute."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from bench.core.errors import UserError
from bench.core.formatting import printable
from bench.report.figures import _style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from bench.analysis.side_by_side import SideBySide, TaskDifference

COLOURS = {"better": _style.COLOURS[0], "worse": _style.COLOURS[3]}  # by verdict; others are grey
ROW, AROUND = 0.34, 2.1  # inches per task, and inches of a panel besides its tasks
AHEAD = "← A is ahead      B is ahead →"
LETTERS_PER_INCH = 10  # letters of a title per inch of the figure's width


def save(sides: SideBySide, path: Path, *, title: str) -> None:
    """Draw a comparison of two sides, A and B, and save it to `path`, a .png, .svg or .pdf.

    Raises:
        UserError: the file cannot be written.
    """
    with _style.context():
        try:
            draw(sides, title=title).savefig(path, dpi=_style.DPI)
        except OSError as error:
            raise UserError(f"{path} cannot be written: {error.strerror}.") from error


def draw(sides: SideBySide, *, title: str) -> Figure:
    """Return a figure of the differences B minus A: a row for each task that is averaged, one for the average, and one
    for each other task. If there are several levels of compute, a second panel has the average at each of them. Points
    right of (above) zero are in favour of B; bars are intervals."""
    rows = [*sides.tasks, sides.average, *sides.apart]
    several = len(sides.budgets) > 1
    figure = _style.figure(width=9.0 if several else 6.0, height=max(3.0, AROUND + ROW * len(rows)))
    axes, *beside = figure.subplots(1, 2 if several else 1, squeeze=False)[0]
    _bars(axes, rows, np.arange(len(rows)), upright=False)
    axes.axvline(0, color=_style.INK, linewidth=1.0)
    apart = [f"{contrast.task} (not averaged)" for contrast in sides.apart]
    axes.set_yticks(range(len(rows)), [printable(row.task) for row in rows[: len(rows) - len(apart)]] + apart)
    axes.get_yticklabels()[len(sides.tasks)].set_fontweight("bold")
    axes.set(
        ylim=(len(rows) - 0.4, -0.6), xlabel=f"B − A [points of accuracy], {sides.average.level:.0%} interval\n{AHEAD}"
    )
    axes.set_title("by task" if several else "", loc="left")
    for panel in beside:
        x = [budget.train_flops for budget in sides.budgets]
        _bars(panel, [budget.contrast for budget in sides.budgets], x, upright=True)
        panel.axhline(0, color=_style.INK, linewidth=1.0)
        _style.plain_log_x(panel, x)
        panel.set(xlabel="FLOPs of training", ylabel="B − A [points of accuracy]")
        panel.set_title("average, by compute", loc="left")
    lines = (
        textwrap.fill(printable(line), LETTERS_PER_INCH * int(figure.get_figwidth())) for line in title.splitlines()
    )
    figure.suptitle("\n".join(lines), x=0.01, horizontalalignment="left", fontsize=12)
    return figure


def _bars(axes: Axes, contrasts: list[TaskDifference], places: object, *, upright: bool) -> None:
    """Draw each difference as a point with its interval, in the colour of its verdict. `places`: positions of the
    points on the other axis; `upright`: differences are on the y axis, else on the x axis."""
    for contrast, place in zip(contrasts, places, strict=True):  # type: ignore[call-overload]
        value, ends = 100 * contrast.estimate, 100 * np.array([contrast.low, contrast.high])
        error, colour = abs(ends - value)[:, None], COLOURS.get(contrast.verdict, _style.GREY)
        at, bar = ((place, value), {"yerr": error}) if upright else ((value, place), {"xerr": error})
        axes.errorbar(*at, **bar, fmt="o", color=colour, markersize=6, elinewidth=1.6, capsize=0)
