"""Pictures of `vit-bench fit`: runs, with the law that predicts and its bands, also beyond the runs; and how far past
predictions were off."""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.text import Text

from bench.core.errors import UserError
from bench.core.formatting import compact, printable
from bench.laws import wording
from bench.laws.runs_table import scale_of
from bench.laws.table_fit import ONLY_GROUP
from bench.report.figures import _style
from bench.report.style import PAGE, Style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MAX_TOGETHER, MAX_PANELS = 6, 12  # laws that share one panel at most; panels at most, if each law has its own
BANDS = (("one_run", 0.09), ("total", 0.22))  # opacity of the bands of one more run, and of the law
OPACITY_BEYOND = 0.5  # factor on both opacities beyond the runs
LOG_SPAN = 1.5  # largest over smallest y, from which on y has a logarithmic axis
NARROW, WIDE = 5.0, 7.0  # inches below which there is no room for labels at the laws' ends; for a legend of two columns
TITLE_SIZE, LETTERS = 12.0, 130.0  # points on the page; letters per inch at one point


def save(result: Mapping[str, Any], path: Path, *, style: Style = PAGE, record: bool = False) -> None:
    """Draw an answer of `vit-bench fit` and save it to `path`, a .png, .svg or .pdf.

    Args:
        result: the answer, of a request with `Request.curves`.
        record: draw the errors of the law's past predictions instead of the laws. This needs no `curves`.

    Raises:
        UserError: the file cannot be written.
    """
    with _style.drawn_as(style), _style.context():
        figure = draw_record(result) if record else draw(result)
        try:
            figure.savefig(path, dpi=_style.DPI)
        except OSError as error:
            raise UserError(f"{path} cannot be written: {error.strerror}.") from error


def draw(result: Mapping[str, Any]) -> Figure:
    """Return a figure of the laws of an answer: one panel, with a label at the end of every law. More than
    `MAX_TOGETHER` laws get a panel each, in which the other laws are grey; of more than `MAX_PANELS` laws, those with
    most runs are drawn."""
    style, x, every = _style.current(), printable(result["x"][0]), result["fits"].items()
    shown = dict(sorted(every, key=lambda item: -len(item[1]["points"]["x"]))[:MAX_PANELS])
    together, laws = len(every) <= MAX_TOGETHER, list(shown.values())
    columns = 1 if together else style.columns
    rows = 1 if together else -(-len(shown) // columns)
    width, height = style.single if together else (style.width, rows * style.panel_height)
    figure = _style.figure(width=width, height=height + 1.1)
    panels = list(figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True).flat)
    families = {name: _style.look(name, ()) for name in shown}
    known = len({*families.values()} & {*_style.FAMILIES.values()}) == len(shown)
    in_order = _style.LOOKS if together else _style.LOOKS[:1] * MAX_PANELS
    looks = families if known else dict(zip(shown, in_order, strict=False))
    exponents = {name: wording.with_ends(law["slope"]) for name, law in shown.items()}
    labels = {name: printable(f"{name}\n{exponents[name]}".removeprefix(f"{ONLY_GROUP}\n")) for name in shown}
    scale, unit = (100.0, " [%]") if result["share"] else (1.0, "")
    for axes, name in zip(panels * (len(shown) if together else 1), shown, strict=False):
        _law(axes, shown[name], looks[name], scale)
        axes.set_title("" if together else labels[name], loc="left")
        for curve in () if together else [law["curve"] for law in laws]:
            axes.plot(curve["x"], scale * np.array(curve["y"]), color="#D0D0D0", linewidth=0.8, zorder=0)
    for number, axes in enumerate(panels):
        axes.set(
            xlabel=x if scale_of(x) == 1 else f"{x} × {compact(scale_of(x))}",
            ylabel=printable(result["y"] + unit),
            visible=number < len(shown),
        )
        axes.label_outer()
    _scales(panels[0], laws, scale, sparse=not together)
    beside, handles = together and width >= NARROW, _signs(laws, x)
    if together and not beside:
        handles = _style.handles({labels[name].replace("\n", ": "): look for name, look in looks.items()}) + handles
    left_out = f"; drawn: the {MAX_PANELS} of most runs" if len(shown) < len(every) else ""
    size, wide = style.text(TITLE_SIZE), figure.get_figwidth()
    title = textwrap.fill(  # no line ends inside an interval
        re.sub(r", (?=[^\[]*\])", ",\u00a0", printable(wording.title(result) + left_out)),
        int(LETTERS * wide / size),
    )
    figure.suptitle(title, x=0.01, horizontalalignment="left", fontsize=size)
    figure.legend(handles=handles, loc="outside lower left", ncols=1 if wide < WIDE else 2)
    if beside:
        ends = {name: (law["curve"]["x"][-1], scale * law["curve"]["y"][-1]) for name, law in shown.items()}
        _label_ends(panels[0], [(end, labels[name], looks[name][0]) for name, end in ends.items()])
    return figure


def _law(axes: Axes, answer: Mapping[str, Any], look: tuple[str, str], scale: float) -> None:
    """Draw the runs of one law (held-out runs hollow) and the law with its bands, dashed and lighter beyond the runs.
    `look`: (colour, marker); `scale`: units of x per unit of the axis."""
    colour, marker = look
    curve = answer["curve"]
    x, y, beyond = np.array(curve["x"]), scale * np.array(curve["y"]), np.array(curve["beyond"])
    end = int((~beyond).sum())
    for part, weight, dash in ((slice(end), 1.0, "-"), (slice(end - 1, None), OPACITY_BEYOND, _style.EXTRAPOLATED)):
        for name, opacity in BANDS:
            ends = scale * np.array([both or (np.nan, np.nan) for both in curve[name][part]])
            axes.fill_between(x[part], *ends.T, color=colour, alpha=weight * opacity, linewidth=0, zorder=1)
        axes.plot(x[part], y[part], color=colour, linestyle=dash, linewidth=1.8, zorder=2)
    for runs, face in ((answer["points"], colour), (answer["held"], "white")):
        edge = colour if face == "white" else "white"
        axes.scatter(runs["x"], scale * np.array(runs["y"]), s=36, marker=marker, color=face, edgecolors=edge, zorder=3)


def _scales(axes: Axes, laws: Sequence[Mapping[str, Any]], scale: float, *, sparse: bool) -> None:
    """Set the limits of both axes around runs and laws; bands may go beyond them. `scale`: units of x per unit of the
    axis; `sparse`: x gets numbers only at powers of ten."""
    parts = [law[kind] for law in laws for kind in ("points", "held", "curve")]
    x, y = ([value for part in parts for value in part[name]] for name in "xy")
    low, high = scale * min(y), scale * max(y)
    margin = (high / low) ** 0.06
    axes.set_ylim(low / margin, high * margin)
    if high > LOG_SPAN * low:
        _style.plain_log_y(axes, text=compact)
    left_out = (lambda at: not math.log10(at).is_integer()) if sparse else (lambda at: False)
    _style.plain_log_x(axes, x, text=lambda at: "" if left_out(at) else compact(at, 3))


def _signs(laws: Sequence[Mapping[str, Any]], x: str) -> list[Any]:
    """Return the legend's entries, which explain lines, bands, hollow markers and numbers. `x`: name of the laws'
    input."""
    (faint, dark), level = (opacity for _, opacity in BANDS), f"{laws[0]['level']:.0%} interval"
    ends, by = {law["card"]["x_range"][1] for law in laws}, {tuple(law["predicted_by"]) for law in laws}
    beyond = f" ({x} > {compact(ends.pop(), 3)})" if len(ends) == 1 else ""
    beyond += "" if all(law["curve"]["beyond"][-1] for law in laws) else "; none where too little is known for it"
    place = "" if by == {("power",)} else f", −d log y / d log x at {compact(laws[0]['slope_at'], 3)}"
    held = _style.handles({"held out": (_style.INK, "o")}, hollow=True) if any(law["held"]["x"] for law in laws) else []
    return [
        *held,
        Line2D([], [], color=_style.INK, label=wording.predictor(*by) if len(by) == 1 else "the law that predicts"),
        Line2D([], [], color=_style.INK, linestyle=_style.EXTRAPOLATED, label=f"beyond the runs{beyond}"),
        Patch(color=_style.INK, alpha=dark + faint, linewidth=0, label=f"{level} of the law"),
        Patch(color=_style.INK, alpha=faint, linewidth=0, label=f"{level} of one more run"),
        Line2D([], [], linestyle="", label=f"numbers: exponent [{level}]{place}"),
    ]


def _label_ends(axes: Axes, ends: Sequence[tuple[tuple[float, float], str, Any]]) -> None:
    """Write labels to the right of a panel, none over another, each joined to the end of its curve by a line.

    Args:
        ends: ((x, y) of the curve's end in data coordinates, text, colour) of each label.
    """
    ordered = sorted(ends, key=lambda end: -end[0][1])
    labels = [
        axes.annotate(
            text,
            end,
            xytext=(1.03, 0.5),
            textcoords="axes fraction",
            color=colour,
            fontsize=_style.current().text(_style.LABEL_SIZE),
            verticalalignment="center",
            arrowprops={"arrowstyle": "-", "color": colour, "linewidth": 0.7, "shrinkA": 0, "shrinkB": 2},
        )
        for end, text, colour in ordered
    ]
    axes.figure.draw_without_rendering()  # type: ignore[union-attr]
    height = max(Text.get_window_extent(label).height for label in labels) * 1.1 / axes.get_window_extent().height
    wanted = (axes.transData - axes.transAxes).transform([end for end, *_ in ordered])[:, 1]
    above = height * np.arange(len(ordered))
    places = np.maximum(np.minimum.accumulate(wanted + above) - above, (height * len(ordered) - above) - height / 2)
    for label, place in zip(labels, places, strict=True):
        label.set_position((1.03, place))


def draw_record(result: Mapping[str, Any]) -> Figure:
    """Return a figure of the errors of past predictions, against how far beyond the data they reached: one panel per
    group of runs, with one line per origin (the end of the data that predictions were made from)."""
    fits = result["fits"]
    figure = _style.figure(height=3.4 * len(fits), width=8.0)
    for axes, (name, answer) in zip(figure.subplots(len(fits), squeeze=False).flat, fits.items(), strict=True):
        curves, band = answer["backtest"]["curves"], answer["backtest"]["band"]
        last = len(curves) - 1
        for age, curve in enumerate(curves):
            label = f"{'earliest' if age else 'latest'} origin, {compact(curve['end'], 3)}" if age in (0, last) else ""
            errors = 100 * np.array([0, *curve["error"]])
            axes.plot([1, *curve["factor"]], errors, color=str(0.25 + 0.6 * age / (last + 1)), label=label)
        known = [(factor, 100 * low, 100 * high) for factor, low, high in band if low is not None]
        factors, lows, highs = np.array(known).reshape(-1, 3).T
        if known:
            label = f"{answer['level']:.0%} interval now"
            axes.fill_between(factors, lows, highs, color="#0072B2", alpha=0.15, linewidth=0, label=label)
        near = [abs(100 * e) for c in curves for f, e in zip(c["factor"], c["error"], strict=True) if f < 10]
        limit = 1.1 * max([0.1, *near, *abs(lows), *abs(highs)])
        axes.set(xscale="log", xlim=(1, 10), ylim=(-limit, limit), xlabel="Times beyond the origin")
        axes.set_xticks([1, 2, 4, 8], ["1", "2", "4", "8"])
        axes.minorticks_off()
        axes.set_ylabel("Observed / predicted − 1 [%]")
        axes.set_title(printable(f"{name}: {wording.predictor(answer['predicted_by'])}"))
        axes.legend(loc="upper left")
    return figure
