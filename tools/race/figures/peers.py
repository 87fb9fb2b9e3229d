"""Training speed over that of every library, one panel per model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from bench.analysis.evidence import Evidence
from bench.core.formatting import join, plural
from bench.report.figures import _style
from bench.report.figures.figure import Drawing, Figure, NothingToDraw
from tools.race import races
from tools.race.races import RacedContender

TITLE = "Training speed beside other libraries"
OWN_COLOUR = _style.COLOURS[0]
DAYS = "; what differs between days and hosts is not in them"  # of races that were run once
REACH = 1.25  # times the smallest and the largest ratio: the ends of the axis; an arrow says that an interval goes on
ROW, FRAME = 0.4, 1.0  # inches: of one library, of a panel's title and axis


def draw(evidence: Evidence) -> Drawing:
    """A panel per model: this project's speed over that of each library, with its interval, as the answer has it; who
    was left out is named in the caption."""
    everything = races.races(evidence)
    drawn = [known for race in everything if (known := [c for c in race if not c.own and c.own_over])]
    if not drawn:
        raise NothingToDraw("no race has times of this project and of another library")
    columns = _style.columns(2)
    pairs = [drawn[n : n + columns] for n in range(0, len(drawn), columns)]
    rows = [max(map(len, pair)) for pair in pairs]
    ratios = [c.own_over.value for race in drawn for c in race if c.own_over]
    edges = min(1.0, *ratios) / REACH, max(1.0, *ratios) * REACH
    with _style.context():
        figure = _style.figure(height=ROW * sum(rows) + FRAME * len(pairs))
        panels = figure.subplots(len(pairs), columns, squeeze=False, height_ratios=rows)
        for row_of_axes, pair, most in zip(panels, pairs, rows, strict=True):
            for axes, race in zip(row_of_axes, pair, strict=False):
                _race(axes, race, rows=most, edges=edges)
            for axes in row_of_axes[len(pair) :]:
                axes.remove()
    contenders = [c for race in everything for c in race]
    return Drawing(
        figure=figure,
        data=pd.DataFrame([_row(c) for c in contenders]),
        caption=_caption(contenders, evidence),
        alt=f"{TITLE}: {plural(len(drawn), 'model')}, one panel each.",
    )


def _race(axes: Any, race: Sequence[RacedContender], *, rows: int, edges: tuple[float, float]) -> None:
    """The fastest library on top: it is the one that the answer compares with."""
    ratios = {c.name: c.own_over for c in sorted(race, key=lambda c: c.own_over.value) if c.own_over}  # type: ignore[union-attr]
    axes.axvline(1.0, color=_style.INK, linewidth=0.9)
    for place, ratio in enumerate(ratios.values()):
        colour, ends = _style.GREY if place else OWN_COLOUR, (ratio.low or ratio.value, ratio.high or ratio.value)
        low, high = max(ends[0], edges[0]), min(ends[1], edges[1])
        axes.plot([low, high], [place, place], color=colour, linewidth=1.6)
        for end, edge, head in ((ends[0], low, "<"), (ends[1], high, ">")):
            mark = head if end != edge else ""
            axes.plot(edge, place, color=colour, marker=mark, markersize=6, clip_on=False)
        axes.plot(ratio.value, place, color=colour, marker="o", markersize=8, markeredgecolor="white")
        cut = "" if ends == (low, high) else f" [{ends[0]:.2f}, {ends[1]:.2f}]"
        behind = {**_style.BEHIND_TEXT, "alpha": 1.0}
        said = {"color": colour, "fontsize": _style.text(9), "bbox": behind}
        axes.annotate(f"{ratio.value:.2f}{cut}", (ratio.value, place), (-4, 6), textcoords="offset points", **said)
    axes.set_yticks(range(len(ratios)), list(ratios))
    axes.set_xlim(edges)
    axes.set_ylim(rows - 0.5, -0.7)  # rows are as high in every panel
    axes.set_title(f"{race[0].race[0]} at {race[0].race[1]} px, batch {race[0].batch}", loc="left")
    axes.set_xlabel("This project's speed over theirs")
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
        f"and batches. Blue: the fastest library, with which the answer compares. Error bars: {evidence.level:.0%} of "
        "repetitions of such a measurement lie in them"
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
