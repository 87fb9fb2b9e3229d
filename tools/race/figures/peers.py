"""Training speed of every library over timm's defaults, one panel per model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd
import seaborn as sns

from bench.analysis.evidence import Evidence
from bench.core.formatting import join, plural
from bench.report.figures import _style
from bench.report.figures.figure import Drawing, Figure, NothingToDraw
from tools.race import races
from tools.race.races import RacedContender

TITLE = "Training speed beside other libraries"
OWN_COLOUR, PEER_COLOUR = _style.COLOURS[0], _style.GREY
DAYS = "; what differs between days and hosts is not in them"  # of races that were run once
MAX_REACH = 1.5  # times its ratio: as far as an interval is drawn; an arrow says that it goes on
BAR, FRAME = 0.31, 1.0  # inches: of one bar, of a panel's title and axis


def draw(evidence: Evidence) -> Drawing:
    """Bars are ratios to the base with their intervals; who was left out is named in the caption."""
    everything = races.races(evidence)
    drawn = [known for race in everything if (known := [c for c in race if c.over_base])]
    if not drawn:
        raise NothingToDraw("no race has a time for timm's defaults")
    pairs = [drawn[n : n + 2] for n in range(0, len(drawn), 2)]
    bars = [max(map(len, pair)) for pair in pairs]
    ratios = [c.over_base for race in drawn for c in race if c.over_base]
    widest = max(min(r.high or r.value, MAX_REACH * r.value) for r in ratios)
    with _style.context():
        figure = _style.figure(height=BAR * sum(bars) + FRAME * len(pairs))
        panels = figure.subplots(len(pairs), 2, squeeze=False, height_ratios=bars)
        for row_of_axes, pair, most in zip(panels, pairs, bars, strict=True):
            for axes, race in zip(row_of_axes, pair, strict=False):
                _race(axes, race, bars=most, widest=widest)
            for axes in row_of_axes[len(pair) :]:
                axes.remove()
    contenders = [c for race in everything for c in race]
    return Drawing(
        figure=figure,
        data=pd.DataFrame([_row(c) for c in contenders]),
        caption=_caption(contenders, evidence),
        alt=f"{TITLE}: {plural(len(drawn), 'model')}, one panel each.",
    )


def _race(axes: Any, race: Sequence[RacedContender], *, bars: int, widest: float) -> None:
    ratios = [c.over_base for c in race if c.over_base]
    values = [r.value for r in ratios]
    errors = [[r.value - (r.low or r.value) for r in ratios], [(r.high or r.value) - r.value for r in ratios]]
    names = [c.name for c in race]
    palette = {c.name: OWN_COLOUR if c.own else PEER_COLOUR for c in race}
    sns.barplot(x=values, y=names, hue=names, palette=palette, saturation=1, width=0.72, legend=False, ax=axes)
    axes.errorbar(values, range(len(values)), xerr=errors, linestyle="", ecolor="#222222", elinewidth=1.1)
    for place, value in enumerate(values):
        axes.text(0.02 * widest, place, f"{value:.2f}", va="center", color="white", fontweight="bold", fontsize=9)
    for place, ratio in enumerate(ratios):
        if (ratio.high or ratio.value) > 1.04 * widest:
            axes.plot(1.04 * widest, place, marker=">", color="#222222", markersize=6, clip_on=False)
    axes.axvline(1.0, color="#222222", linewidth=0.9)
    axes.set_xlim(0, 1.04 * widest)
    axes.set_ylim(bars - 0.5, -0.5)  # bars are as thick in every panel; the first on top
    axes.set_title(f"{race[0].race[0]} at {race[0].race[1]} px, batch {race[0].batch}", loc="left")
    axes.set_ylabel("")
    axes.set_xlabel(f"Speed over {races.BASE}")
    axes.grid(axis="y", visible=False)


def _row(c: RacedContender) -> dict[str, Any]:
    ends = {}
    for name, ratio in (("over_base", c.over_base), ("own_over", c.own_over)):
        for end in ("value", "low", "high", "races", "starts", "rounds"):
            ends[name if end == "value" else f"{name}_{end}"] = getattr(ratio, end) if ratio else None
    return {
        "model": c.race[0],
        "image_size": c.race[1],
        "seeds": " ".join(map(str, c.seeds)),
        "batch": c.batch,
        "contender": c.name,
        "left_out": c.left_out,
        "dtype": c.dtype,
        "settings": races.settings(c.settings),
        "images_per_second": c.images_per_second,
        "q1": c.quartiles[0],
        "q3": c.quartiles[1],
        "share_of_peak": c.share_of_peak,
        "first_call_seconds": c.first_call_seconds,
        "loss_difference": c.loss_difference,
        "device": c.device,
        "threads": c.threads,
        "torch": c.torch,
        **ends,
    }


def _caption(contenders: Sequence[RacedContender], evidence: Evidence) -> str:
    ratios = [c.over_base for c in contenders if c.over_base]
    often = " or ".join(dict.fromkeys(races.repetitions(ratio) for ratio in ratios))
    first = contenders[0]
    text = (
        f"Each contender with the settings that were fastest in short trials, in turns: {often}. Same weights, images "
        f"and batches. Error bars: {evidence.level:.0%} of repetitions of such a measurement lie in them"
        f"{DAYS if all(ratio.races == 1 for ratio in ratios) else ''}. Device: {first.device}, "
        f"{plural(first.threads or 1, 'thread')}, torch {first.torch}."
    )
    out: dict[tuple[str, str], dict[str, None]] = {}
    for c in contenders:
        if c.left_out:
            out.setdefault((f"{c.race[0]} at {c.race[1]} px", c.left_out), {})[c.name.split(", ")[0]] = None
    left = [f"{race}: {join(list(names))} ({why})" for (race, why), names in out.items()]
    return text + (f" Left out: {'; '.join(left)}." if left else "")


FIGURE = Figure(title=TITLE, draw=draw)
