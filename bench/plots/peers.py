"""Training speed of every library over timm's defaults, one panel per model."""

from __future__ import annotations

from typing import Any

import pandas as pd

from bench.analysis import peers
from bench.analysis.evidence import Evidence
from bench.plots import _style
from bench.plots._contract import Drawing, NothingToDraw

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
    return Drawing(figure=figure, data=pd.DataFrame(rows), caption=_caption(rows, evidence), alt=_alt(evidence))


def _caption(rows: list[dict[str, Any]], evidence: Evidence) -> str:
    rounds = sorted({row["over_base_rounds"] for row in rows if row["over_base_rounds"]}, key=str)
    first = rows[0]
    parts = [
        f"Geometric means over {'–'.join(str(n) for n in rounds)} rounds of windows that take turns, with "
        f"{evidence.level:.0%} t intervals; same weights, images and batches. {first['device']}, {first['threads']} "
        f"thread(s), torch {first['torch']}."
    ]
    parts += [f"{race}: {sentence}" for race, _, sentence in peers.sentences(evidence.records.records)]
    out = dict.fromkeys(f"{row['contender'].split(', ')[0]} on {row['race']} ({row['left_out']})" for row in rows
                        if row["left_out"])  # fmt: skip
    return " ".join(parts) + (f" Left out: {'; '.join(out)}." if out else "")


def _alt(evidence: Evidence) -> str:
    said = [f"{race}: {sentence}" for race, _, sentence in peers.sentences(evidence.records.records)]
    return f"{TITLE}. " + " ".join(said)
