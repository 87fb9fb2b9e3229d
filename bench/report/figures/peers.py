"""Training speed of every library over timm's defaults, one panel per model."""

from __future__ import annotations

from typing import Any

import pandas as pd

from bench.analysis import peers
from bench.analysis.evidence import Evidence
from bench.core.formatting import join, plural
from bench.report.figures import _style
from bench.report.figures._contract import Drawing, NothingToDraw

TITLE = "Training speed beside other libraries"
OWN_COLOUR, PEER_COLOUR = "#0072B2", "#9A9A9A"
BAR, FRAME = 0.31, 1.0  # inches: of one bar, of a panel's title and axis


def draw(evidence: Evidence) -> Drawing:
    """Bars are ratios to the base with their intervals; who was left out is named in the caption."""
    rows = peers.rows(evidence.records.records, level=evidence.level)
    drawn = [row for row in rows if row["over_base"]]
    if not drawn:
        raise NothingToDraw("no race has a time for timm's defaults")
    races: dict[Any, list[dict[str, Any]]] = {}
    for row in drawn:
        races.setdefault((row["race"], row["seed"]), []).append(row)
    pairs = [list(races.values())[n : n + 2] for n in range(0, len(races), 2)]
    heights = [BAR * max(map(len, pair)) + FRAME for pair in pairs]
    widest = max(row["over_base_high"] or row["over_base"] for row in drawn)
    with _style.context():
        figure = _style.figure(height=sum(heights))
        panels = figure.subplots(len(pairs), 2, squeeze=False, height_ratios=heights)
        for row_of_axes, pair, height in zip(panels, pairs, heights, strict=True):
            for axes, mine in zip(row_of_axes, pair, strict=False):
                _race(axes, mine, bars=(height - FRAME) / BAR, widest=widest)
            for axes in row_of_axes[len(pair) :]:
                axes.remove()
    return Drawing(figure=figure, data=pd.DataFrame(rows), caption=_caption(rows, evidence),
                   alt=f"{TITLE}: {plural(len(races), 'model')}, one panel each.")  # fmt: skip


def _race(axes: Any, rows: list[dict[str, Any]], *, bars: float, widest: float) -> None:
    values = [row["over_base"] for row in rows]
    errors = [[row["over_base"] - row["over_base_low"] for row in rows],
              [row["over_base_high"] - row["over_base"] for row in rows]]  # fmt: skip
    colours = [OWN_COLOUR if peers.is_own(row) else PEER_COLOUR for row in rows]
    axes.barh([row["contender"] for row in rows], values, color=colours, xerr=errors, height=0.72,
              error_kw={"ecolor": "#222222", "elinewidth": 1.1})  # fmt: skip
    for place, value in enumerate(values):
        axes.text(0.02 * widest, place, f"{value:.2f}", va="center", color="white", fontweight="bold", fontsize=9)
    axes.axvline(1.0, color="#222222", linewidth=0.9)
    axes.set_xlim(0, 1.04 * widest)
    axes.set_ylim(bars - 0.5, -0.5)  # bars are as thick in every panel; the first on top
    axes.set_title(f"{rows[0]['race']}, batch {rows[0]['batch']}")
    axes.set_xlabel(f"Training images/s over {peers.BASE}")
    axes.grid(axis="y", visible=False)


def _caption(rows: list[dict[str, Any]], evidence: Evidence) -> str:
    rounds = sorted({row["over_base_rounds"] for row in rows if row["over_base_rounds"]}, key=str)
    first = rows[0]
    text = (
        f"Geometric means over {'–'.join(str(n) for n in rounds)} rounds in which all take turns, with "
        f"{evidence.level:.0%} t intervals; same weights, images and batches. Device: {first['device']}, "
        f"{plural(first['threads'], 'thread')}, torch {first['torch']}."
    )
    out: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        if row["left_out"]:
            out.setdefault((row["race"], row["left_out"]), []).append(row["contender"].split(", ")[0])
    left = [f"{race}: {join(list(dict.fromkeys(names)))} ({why})" for (race, why), names in out.items()]
    return text + (f" Left out: {'; '.join(left)}." if left else "")
