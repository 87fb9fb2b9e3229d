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
OWN_COLOUR, PEER_COLOUR = "#0072B2", "#7F7F7F"


def draw(evidence: Evidence) -> Drawing:
    """Bars are ratios to the base with their intervals; who was left out is named in the caption."""
    rows = peers.rows(evidence.records.records, level=evidence.level)
    drawn = [row for row in rows if row["over_base"]]
    if not drawn:
        raise NothingToDraw("no race has a time for timm's defaults")
    races = list(dict.fromkeys((row["race"], row["seed"]) for row in drawn))
    tallest = max(sum((row["race"], row["seed"]) == race for row in drawn) for race in races)
    with _style.context():
        down = -(-len(races) // 2)
        figure = _style.figure(height=(0.9 + 0.33 * tallest) * down)
        panels = figure.subplots(down, min(2, len(races)), squeeze=False).flatten()
        for axes, race in zip(panels, races, strict=False):
            mine = [row for row in drawn if (row["race"], row["seed"]) == race][::-1]
            values = [row["over_base"] for row in mine]
            errors = [[row["over_base"] - row["over_base_low"] for row in mine],
                      [row["over_base_high"] - row["over_base"] for row in mine]]  # fmt: skip
            colours = [OWN_COLOUR if peers.is_own(row) else PEER_COLOUR for row in mine]
            axes.barh([row["contender"] for row in mine], values, color=colours, xerr=errors,
                      error_kw={"ecolor": "#222222", "elinewidth": 1.1})  # fmt: skip
            axes.axvline(1.0, color="#222222", linewidth=0.9)
            axes.set_xlim(0)
            axes.set_title(f"{mine[0]['race']}, batch {mine[0]['batch']}")
            axes.set_xlabel(f"Training images/s over {peers.BASE}")
            axes.grid(axis="y", visible=False)
        for axes in panels[len(races) :]:
            axes.remove()
    return Drawing(figure=figure, data=pd.DataFrame(rows), caption=_caption(rows, evidence),
                   alt=f"{TITLE}: {plural(len(races), 'model')}, one panel each.")  # fmt: skip


def _caption(rows: list[dict[str, Any]], evidence: Evidence) -> str:
    rounds = sorted({row["over_base_rounds"] for row in rows if row["over_base_rounds"]}, key=str)
    first = rows[0]
    parts = [
        f"Geometric means over {'–'.join(str(n) for n in rounds)} rounds of windows that take turns, with "
        f"{evidence.level:.0%} t intervals; same weights, images and batches. Device: {first['device']}, "
        f"{plural(first['threads'], 'thread')}, torch {first['torch']}."
    ]
    out: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        if row["left_out"]:
            out.setdefault((row["race"], row["left_out"]), []).append(row["contender"].split(", ")[0])
    left = [f"{race}: {join(list(dict.fromkeys(names)))} ({why})" for (race, why), names in out.items()]
    return " ".join(parts) + (f" Left out: {'; '.join(left)}." if left else "")
