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
from bench.report import fits
from bench.report.figures import _panels, _style
from bench.report.figures._contract import Annotation, Drawing, NothingToDraw
from bench.stats.extrapolation import MIN_ORIGINS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TITLE = "Scaling laws fitted to the frontiers"
DASH = (0, (4, 2))
ENDS = ("within_low", "within_high", "total_low", "total_high")


def draw(evidence: Evidence) -> Drawing:
    """A panel per axis (compute, distinct images). Error on a logarithmic axis, so that a power law is straight."""
    cards = fits.cards(evidence)
    if not cards:
        raise NothingToDraw(" ".join(fits.missing(evidence)) or "no law could be fitted")
    axes_names = list(dict.fromkeys(card["axis"] for card in cards))
    families = list(dict.fromkeys(card["family"] for card in cards))
    rows = [row for card in cards for row in _rows(card)]
    annotations: list[Annotation] = []
    with _style.context():
        figure, panels, legend = _panels.grid(len(axes_names), legend_lines=len(families) + 5)
        for axes, name in zip(panels, axes_names, strict=True):
            mine = [card for card in cards if card["axis"] == name]
            xs = [x for card in mine for x in card["curve"]["x"]]
            scale, unit = flop_unit((min(xs) * max(xs)) ** 0.5) if name == "compute" else (1.0, "")
            for card in mine:
                _law(axes, card, scale, _style.look(card["family"], families), hollow=evidence.published)
                annotations += [
                    Annotation(
                        axes=axes,
                        x=point["x"] / scale,
                        y=100 * point["error"],
                        text=(
                            f"{card['family']}, on the frontier\nerror {percent(point['error'])} %, corrected "
                            f"for being "
                            "chosen as best" + ("\npublished" if evidence.published else "")
                        ),
                    )
                    for point in card["frontier"]
                ]
            _style.plain_log_x(axes, [x / scale for x in xs])
            _plain_log_y(axes, [row["error"] for row in rows if row["axis"] == name])
            axes.set_xlabel(f"Pre-training compute [{unit}s]" if name == "compute" else "Distinct pre-training images")
            axes.set_ylabel("Error on the headline tasks [%]")
        _panels.place_legend(legend, _legend(families, hollow=evidence.published))
    return Drawing(
        figure=figure,
        data=pd.DataFrame(rows),
        annotations=tuple(annotations),
        alt=f"{TITLE}: {len(cards)} laws.",
        caption=" ".join(
            [
                "Large points: each family's best, corrected for being chosen as best; dots: the runs on or "
                "near them that "
                f"were fitted, one per seed. Lines: {_fitted(cards)}.",
                f"Dark bands: {cards[0]['level']:.0%} intervals if the form is right; light bands: over all forms and "
                "losses, and beyond the points also what the same law missed from earlier budgets. Dashed: "
                "extrapolated beyond every point.",
                *_no_record(cards),
                *_lack_of_fit(cards),
                *fits.missing(evidence),
            ]
        ),
    )


def _fitted(cards: Sequence[dict[str, Any]]) -> str:
    """What the lines are: "against compute, the form power for ViT (20 runs) and Hybrid (14 runs)"."""
    groups: dict[tuple[str, str], list[str]] = {}
    for card in cards:
        fit = card["card"]
        groups.setdefault((card["axis"], fit["form"]), []).append(f"{card['family']} ({fit['points']} runs)")
    return "; ".join(
        f"against {fits.AXES[axis]}, the form {form} for {join(who)}" for (axis, form), who in groups.items()
    )


def _no_record(cards: Sequence[dict[str, Any]]) -> list[str]:
    """Whose laws are extrapolated without an interval, in a sentence."""
    found = [f"{card['family']} against {fits.AXES[card['axis']]}" for card in cards if not card["has_record"]]
    why = f"no interval beyond the points, with fewer than {MIN_ORIGINS} earlier budgets to test the law from"
    return [f"{join(found)}: {why}."] if found else []


def _lack_of_fit(cards: Sequence[dict[str, Any]]) -> list[str]:
    """A sentence: whose line misses its group means, and by how much of their error."""
    found = [
        f"{card['family']} against {fits.AXES[card['axis']]} by up to {card['lack_of_fit']['worst']:.0%}"
        for card in cards
        if card["lack_of_fit"] and card["lack_of_fit"]["fails"]
    ]
    return [f"Lines that miss their points by more than seed noise: {join(found)} of the error there."] if found else []


def _law(axes: Axes, card: dict[str, Any], scale: float, look: tuple[str, str], *, hollow: bool) -> None:
    (colour, marker), curve = look, card["curve"]
    x, y, beyond = np.array(curve["x"]) / scale, 100 * np.array(curve["y"]), np.array(curve["beyond"], dtype=bool)
    for key, strength in (("total", 0.10), ("within", 0.16)):
        low, high = 100 * np.array(curve[key], dtype=float).T
        axes.fill_between(x, low, high, color=colour, alpha=strength, linewidth=0, zorder=1)
    last = int(np.flatnonzero(~beyond).max())
    axes.plot(x[: last + 1], y[: last + 1], color=colour, linewidth=1.8, zorder=2)
    axes.plot(x[last:], y[last:], color=colour, linewidth=1.5, linestyle=DASH, zorder=2)
    for key, shape, size, above in (("runs", ".", 5, 2.5), ("frontier", marker, 7, 3)):
        places = [(p["x"] / scale, 100 * p["error"]) for p in card[key]]
        filled = "white" if hollow and key == "frontier" else colour
        edge = colour if filled == "white" or key == "runs" else "white"
        axes.plot(
            *zip(*places, strict=True),
            linestyle="",
            marker=shape,
            markersize=size,
            color=colour,
            zorder=above,
            alpha=0.55 if key == "runs" else 1.0,
            markerfacecolor=filled,
            markeredgecolor=edge,
        )


def _rows(card: dict[str, Any]) -> list[dict[str, Any]]:
    about, curve = {"axis": card["axis"], "family": card["family"]}, card["curve"]
    rows = [
        about | {"kind": kind, "x": p["x"], "error": p["error"]}
        for kind, key in (("frontier", "frontier"), ("run", "runs"))
        for p in card[key]
    ]
    columns = (curve[key] for key in ("x", "y", "beyond", "within", "total"))
    for x, y, beyond, within, total in zip(*columns, strict=True):
        rows.append(
            about
            | {"kind": "extrapolated" if beyond else "fitted", "x": x, "error": y}
            | dict(zip(ENDS, (*within, *total), strict=True))
        )
    return rows


def _legend(families: Sequence[str], *, hollow: bool) -> list[Any]:
    grey = "#555555"
    return [
        *(_style.family_handle(family, families, hollow=hollow, markersize=7, linewidth=1.8) for family in families),
        Line2D([], [], color=grey, linestyle="", marker=".", markersize=5, alpha=0.55, label="fitted run"),
        Line2D([], [], color=grey, linewidth=1.8, label="fitted, within the points"),
        Line2D([], [], color=grey, linewidth=1.5, linestyle=DASH, label="extrapolated"),
        Patch(color=grey, alpha=0.28, label="interval if the form is right"),
        Patch(color=grey, alpha=0.12, label="total interval"),
    ]


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
