"""Figure of the scaling law fitted to each family's frontier (its best results within each budget), with interval and
slope: solid where there are points, dashed beyond."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pandas as pd
import seaborn as sns
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from bench.analysis.evidence import HEADLINE, Evidence
from bench.core.by_key import by_key
from bench.core.formatting import common_flop_unit, join, percent
from bench.report import fits
from bench.report.figures import _panels, _style
from bench.report.figures.figure import Annotation, Drawing, Figure, NothingToDraw

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TITLE = "Scaling laws fitted to the frontiers"
BAND_OPACITY = 0.13
MAX_SPAN = 1.5  # upper over lower end of an interval: an extrapolation is drawn as long as its interval spans less
BAND_COLUMNS = ("within_low", "within_high", "total_low", "total_high")


def draw(evidence: Evidence) -> Drawing:
    """Draw error on a logarithmic axis, on which a power law is straight, in one panel per x axis (compute, distinct
    images)."""
    cards = fits.cards(evidence)
    if not cards:
        raise NothingToDraw(" ".join(fits.missing(evidence)) or "no law could be fitted")
    axes_names = list(dict.fromkeys(card["axis"] for card in cards))
    families = list(dict.fromkeys(card["family"] for card in cards))
    rows = [row for card in cards for row in _rows(card)]
    annotations: list[Annotation] = []
    with _style.context():
        columns = _style.columns(len(axes_names))
        lines = -(-len(axes_names) // columns)
        figure = _style.figure(columns=len(axes_names), height=lines * _style.current().single[1])
        for axes, name in zip(figure.subplots(lines, columns, squeeze=False).flat, axes_names, strict=False):
            mine = [card for card in cards if card["axis"] == name]
            xs = [x for card in mine for x in card["curve"]["x"]]
            scale, unit = common_flop_unit(xs) if name == "compute" else (1.0, "")
            _panel(
                axes,
                mine,
                pd.DataFrame(row for row in rows if row["axis"] == name),
                scale,
                families,
                hollow=evidence.published,
            )
            axes.set_xlabel(f"Pre-training compute [{unit}s]" if name == "compute" else "Distinct pre-training images")
            is_first = axes is figure.axes[0]
            axes.set_ylabel(_panels.y_label(evidence, HEADLINE, quantity="error") if is_first else "")
            annotations += [
                _annotation(axes, card, point, scale, evidence) for card in mine for point in card["frontier"]
            ]
        grey: dict[str, Any] = {"color": _style.GREY}
        signs = [
            Line2D([], [], **grey, linewidth=1.8, label="fitted"),
            Line2D([], [], **grey, linewidth=1.5, linestyle=_style.EXTRAPOLATED, label="extrapolated"),
            Patch(**grey, alpha=BAND_OPACITY, linewidth=0, label=f"{cards[0]['level']:.0%} interval"),
        ]
        _style.legend(figure, [*_style.family_handles(families, hollow=evidence.published), *signs])
    return Drawing(
        figure=figure,
        data=pd.DataFrame(rows),
        annotations=tuple(annotations),
        alt=f"{TITLE}: {len(cards)} laws.",
        caption=tuple(
            [
                "Large points: each family's best, corrected for being chosen as best; dots: the runs on or "
                "near them that "
                f"were fitted, one per seed. Lines: {_fitted(cards) or 'none'}.",
                f"Bands: {cards[0]['level']:.0%} intervals over all forms and losses; beyond the points, by what the "
                "same law missed from earlier budgets, and such laws on other curves.",
                "Dashed: extrapolated beyond every point, as far as the interval spans less than a factor of "
                f"{MAX_SPAN:g}.",
                "Slope: by how much the logarithm of the error falls with that of x, in the middle of the points.",
                *_lack_of_fit(cards),
                *fits.missing(evidence),
            ]
        ),
    )


def _fitted(cards: Sequence[dict[str, Any]]) -> str:
    """Return in words which laws were fitted, except those that miss their points: "against compute, the form power for
    ViT (20 runs) and Hybrid (14 runs)"."""
    groups = by_key(
        ((card["axis"], card["card"]["form"]), f"{card['family']} ({card['card']['points']} runs)")
        for card in cards
        if not (card["lack_of_fit"] and card["lack_of_fit"]["fails"])
    )
    return "; ".join(
        f"against {fits.AXES[axis]}, the form {form} for {join(who)}" for (axis, form), who in groups.items()
    )


def _lack_of_fit(cards: Sequence[dict[str, Any]]) -> list[str]:
    """Return a sentence, in a list, on the laws that miss the means of repeated runs by more than seed noise, with the
    largest miss as a percentage of the error; an empty list if there are no such laws."""
    missing = [
        f"{card['family']} against {fits.AXES[card['axis']]} by up to {card['lack_of_fit']['worst']:.0%}"
        for card in cards
        if card["lack_of_fit"] and card["lack_of_fit"]["fails"]
    ]
    return (
        [f"Not drawn, because the law misses its points by more than seed noise: {join(missing)} of the error there."]
        if missing
        else []
    )


def _panel(
    axes: Axes,
    cards: Sequence[dict[str, Any]],
    table: pd.DataFrame,
    scale: float,
    families: Sequence[str],
    *,
    hollow: bool,
) -> None:
    """Draw points, laws and their bands, and a legend with the slope of each law.

    Args:
        cards: the laws of this panel, as `fits.cards` returns them.
        table: the rows of points and of points along the laws.
        scale: FLOP, or images, per unit of the x axis.
        families: all families of the figure, which decide the colours.
        hollow: whether points are drawn hollow, because they are published.
    """
    rejected = {card["family"] for card in cards if card["lack_of_fit"] and card["lack_of_fit"]["fails"]}
    table = table[~(table["family"].isin(rejected) & table["kind"].isin(["fitted", "extrapolated"]))]
    table = _worth_drawing(table.assign(x=table["x"] / scale, percent=100 * table["error"]))
    looks = {family: _style.look(family, families) for family in families}
    style: dict[str, Any] = {
        "x": "x",
        "y": "percent",
        "hue": "family",
        "palette": {f: c for f, (c, _) in looks.items()},
        "legend": False,
        "ax": axes,
    }
    for kind, dash in (("fitted", "-"), ("extrapolated", _style.EXTRAPOLATED)):
        if not (along := _joined(table, kind)).empty:  # seaborn warns of a palette without points
            sns.lineplot(along, **style, linestyle=dash, linewidth=1.8, estimator=None, zorder=2)
    if (table["kind"] == "run").any():
        sns.scatterplot(table[table["kind"] == "run"], **style, s=12, alpha=0.45, linewidth=0, zorder=2.5)
    frontier = table[table["kind"] == "frontier"]
    for family, points in frontier.groupby("family", sort=False):
        colour, marker = looks[str(family)]
        face = "white" if hollow else colour
        axes.scatter(
            points["x"],
            points["percent"],
            s=46,
            marker=marker,
            color=face,
            edgecolors=colour if hollow else "white",
            zorder=3,
        )
    curves = table[table["kind"].isin(["fitted", "extrapolated"])]
    for family, curve in curves.groupby("family", sort=False):
        low, high = (100 * curve[f"total_{end}"] for end in ("low", "high"))
        axes.fill_between(curve["x"], low, high, color=looks[str(family)][0], alpha=BAND_OPACITY, linewidth=0, zorder=1)
    points = table[~table["kind"].isin(["fitted", "extrapolated"])]["percent"]
    least = min([points.min(), *curves.loc[curves["kind"] == "extrapolated", "percent"]])
    top = points.max() * max(1.25, (points.max() / least) ** 0.3)  # so the legend has room above the points
    axes.set_ylim(0.9 * least, min(100.0, top))
    if points.max() > 1.5 * points.min():
        _style.plain_log_y(axes)
    _style.plain_log_x(axes, list(table["x"]), room=0.02)
    _style.key(axes, {_exponent(card): looks[card["family"]][0] for card in cards})


def _worth_drawing(table: pd.DataFrame) -> pd.DataFrame:
    """Return the rows that are drawn. Left out are values of a law above 100 %, which are no errors, and each
    extrapolation from where its interval spans a factor of `MAX_SPAN` or more."""
    table = table[(table["percent"] <= 100) | ~table["kind"].isin(["fitted", "extrapolated"])]
    wide = (table["kind"] == "extrapolated") & (table["total_high"] >= MAX_SPAN * table["total_low"])
    first = table[wide].groupby("family")["x"].min()
    ends = table["family"].map(first).fillna(float("inf"))
    return table[(table["kind"] != "extrapolated") | (table["x"] < ends)]


def _joined(table: pd.DataFrame, kind: str) -> pd.DataFrame:
    """Return the rows of the lines of a kind, "fitted" or "extrapolated". An extrapolated line begins with the last row
    of the fitted line, so that no gap is seen."""
    rows = table[table["kind"] == kind]
    if kind == "fitted":
        return rows
    return pd.concat([table[table["kind"] == "fitted"].groupby("family").tail(1), rows]).sort_values("x")


def _exponent(card: dict[str, Any]) -> str:
    """Return in words a family and the slope of its law in the middle of its points, averaged over forms, with its
    interval; or that no law fits its points, in which case none is drawn."""
    lack, slope = card["lack_of_fit"], card["over_forms"].get("slope")
    if lack and lack["fails"]:
        return f"{card['family']}: no smooth law fits"
    if slope is None:
        return str(card["family"])
    value, low, high = (_two_digits(-slope[end]) for end in ("value", "high", "low"))
    return f"{card['family']}: slope {value} [{low}, {high}]"


def _two_digits(value: float) -> str:
    """Return a number as text with two decimals, without a minus sign if it rounds to zero."""
    text = f"{value:.2f}"
    return "0.00" if text == "-0.00" else text.replace("-", "−")


def _annotation(
    axes: Axes, card: dict[str, Any], point: dict[str, float], scale: float, evidence: Evidence
) -> Annotation:
    text = f"{card['family']}, on the frontier\nerror {percent(point['error'])} %, corrected for being chosen as best"
    quoted = "\npublished" if evidence.published else ""
    return Annotation(axes=axes, x=point["x"] / scale, y=100 * point["error"], text=text + quoted)


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
            | dict(zip(BAND_COLUMNS, (*within, *total), strict=True))
        )
    return rows


FIGURE = Figure(title=TITLE, draw=draw)
