"""A fitted law per family on its frontier: solid where there are points, dashed beyond, with both kinds of interval."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullFormatter, NullLocator

from bench.analysis.evidence import Evidence
from bench.core.formatting import flop_unit, join, percent, significant
from bench.report.cards import fit_cards, missing
from bench.report.figures import _panels, _style
from bench.report.figures._contract import Drawing, Mark, NothingToDraw
from bench.stats.lack_of_fit import LackOfFit

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TITLE = "Scaling laws fitted to the frontiers"
AXES = {"compute": "compute", "images": "distinct images"}  # names of the axes in sentences
DIGITS = 4  # significant digits of the CSV: beyond them an optimiser's last steps differ between machines


def draw(evidence: Evidence) -> Drawing:
    """A panel per axis (compute, distinct images). Error on a logarithmic axis, so that a power law is straight."""
    cards = fit_cards(evidence)
    if not cards:
        raise NothingToDraw("; ".join(missing(evidence)) or "no law could be fitted")
    axes_names = list(dict.fromkeys(card["axis"] for card in cards))
    families = [card["family"] for card in cards]
    rows: list[dict[str, Any]] = []
    marks: list[Mark] = []
    with _style.context():
        figure, panels, legend = _panels.grid(len(axes_names), legend_lines=len(set(families)) + 6)
        for axes, name in zip(panels, axes_names, strict=True):
            mine = [card for card in cards if card["axis"] == name]
            xs = [x for card in mine for x in card["curve"]["x"]]
            scale, unit = flop_unit((min(xs) * max(xs)) ** 0.5) if name == "compute" else (1.0, "")
            for card in mine:
                _law(axes, card, scale, families, hollow=evidence.published)
                rows += _rows(card)
                marks += _marks(axes, card, scale, source="published" if evidence.published else "")
            _style.plain_log_x(axes, [x / scale for x in xs])
            _plain_log_y(axes, [row["error"] for row in rows if row["axis"] == name])
            axes.set_xlabel(f"Pre-training compute [{unit}s]" if name == "compute" else "Distinct pre-training images")
            axes.set_ylabel("Error on the headline tasks [%]")
        _panels.place_legend(legend, _legend(families, hollow=evidence.published))
    lacking = missing(evidence)
    return Drawing(
        figure=figure, data=pd.DataFrame(rows), marks=tuple(marks), alt=f"{TITLE}: {len(cards)} laws.",
        caption=" ".join([
            "Marks: each family's best points, corrected for being picked as best; dots: the runs on or near them that "
            f"were fitted, one per seed; lines: {_fitted(cards)}.",
            f"Dark bands: {cards[0]['level']:.0%} intervals within this one analysis; light bands add the spread over "
            "forms and losses. Dashed: beyond every point, extrapolated.", *_missed(cards), *lacking,
        ]),
    )  # fmt: skip


def _missed(cards: Sequence[dict[str, Any]]) -> list[str]:
    """A sentence: whose line misses its own marks, and by how much of their error."""
    found = [(card, misfit) for card in cards if card["misfit"] and (misfit := LackOfFit(**card["misfit"])).fails]
    said = [f"{card['family']} against {AXES[card['axis']]} by up to {misfit.worst:.0%}" for card, misfit in found]
    return [f"Lines that miss their marks by more than seed noise: {join(said)} of the error there."] if said else []


def _fitted(cards: Sequence[dict[str, Any]]) -> str:
    """What the lines are: "against compute, power laws of ViT (20 runs) and Hybrid (14 runs)"."""
    groups: dict[tuple[str, str], list[str]] = {}
    for card in cards:
        fit = card["card"]
        groups.setdefault((card["axis"], fit["form"]), []).append(f"{card['family']} ({fit['points']} runs)")
    return "; ".join(f"against {AXES[axis]}, the form “{form}” for {join(who)}" for (axis, form), who in groups.items())


def _law(axes: Axes, card: dict[str, Any], scale: float, families: Sequence[str], *, hollow: bool) -> None:
    colour, marker = _style.look(card["family"], families)
    curve = card["curve"]
    x, y, beyond = np.array(curve["x"]) / scale, 100 * np.array(curve["y"]), np.array(curve["beyond"], dtype=bool)
    for key, strength in (("total", 0.10), ("within", 0.16)):
        low, high = 100 * np.array(curve[key]).T
        axes.fill_between(x, low, high, color=colour, alpha=strength, linewidth=0, zorder=1)
    last = int(np.flatnonzero(~beyond).max())
    axes.plot(x[: last + 1], y[: last + 1], color=colour, linewidth=1.8, zorder=2)
    axes.plot(x[last:], y[last:], color=colour, linewidth=1.5, linestyle=(0, (4, 2)), zorder=2)
    runs = [(p["x"] / scale, 100 * p["error"]) for p in card["runs"]]
    axes.plot(*zip(*runs, strict=True), linestyle="", marker=".", markersize=5, color=colour, alpha=0.55, zorder=2.5)
    places = [(p["x"] / scale, 100 * p["error"]) for p in card["frontier"]]
    axes.plot(*zip(*places, strict=True), linestyle="", marker=marker, markersize=7, color=colour, zorder=3,
              markerfacecolor="white" if hollow else colour,
              markeredgecolor=colour if hollow else "white")  # fmt: skip


def _rows(card: dict[str, Any]) -> list[dict[str, Any]]:
    about = {"axis": card["axis"], "family": card["family"]}
    rows = [about | {"kind": kind, "x": _short(p["x"]), "error": _short(p["error"])}
            for kind, key in (("frontier", "frontier"), ("run", "runs")) for p in card[key]]  # fmt: skip
    curve = card["curve"]
    for x, y, beyond, within, total in zip(
        *(curve[key] for key in ("x", "y", "beyond", "within", "total")), strict=True
    ):  # fmt: skip
        numbers = dict(zip(("within_low", "within_high", "total_low", "total_high"), (*within, *total), strict=True))
        rows.append(about | {"kind": "extrapolated" if beyond else "fitted", "x": _short(x), "error": _short(y)}
                    | {name: _short(value) for name, value in numbers.items()})  # fmt: skip
    return rows


def _marks(axes: Axes, card: dict[str, Any], scale: float, *, source: str) -> list[Mark]:
    found = []
    for point in card["frontier"]:
        text = f"{card['family']}, on the frontier\nerror {percent(point['error'])} %, corrected for being picked"
        found.append(Mark(axes=axes, x=point["x"] / scale, y=100 * point["error"], text=f"{text}\n{source}".strip()))
    return found


def _legend(families: Sequence[str], *, hollow: bool) -> list[Any]:
    handles: list[Any] = []
    for family in dict.fromkeys(families):
        colour, marker = _style.look(family, families)
        handles.append(Line2D([], [], color=colour, marker=marker, markersize=7, linewidth=1.8, label=family,
                              markerfacecolor="white" if hollow else colour,
                              markeredgecolor=colour if hollow else "white"))  # fmt: skip
    handles += [
        Line2D([], [], color="#555555", linestyle="", marker=".", markersize=5, alpha=0.55, label="fitted run"),
        Line2D([], [], color="#555555", linewidth=1.8, label="fitted, within the points"),
        Line2D([], [], color="#555555", linewidth=1.5, linestyle=(0, (4, 2)), label="extrapolated"),
        Patch(color="#555555", alpha=0.28, label="interval within this analysis"),
        Patch(color="#555555", alpha=0.12, label="total interval"),
    ]
    return handles


def _plain_log_y(axes: Axes, errors: Sequence[float]) -> None:
    """A logarithmic error axis in plain percent; linear where the errors span less than a factor of two."""
    low, high = 100 * min(errors), 100 * max(errors)
    if high > 2 * low:
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(MaxNLocator(nbins=6, steps=[1, 2, 5, 10]))
        axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: significant(value, 2)))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.set_ylim(low / 1.3, min(100.0, high * 1.2))


def _short(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")
