"""For every kind of family, the best accuracy of the study's networks and of somebody else's at every budget."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pandas as pd
import seaborn as sns
from matplotlib.lines import Line2D

from bench.analysis.evidence import HEADLINE, Evidence
from bench.analysis.families import kind_of
from bench.core.formatting import common_flop_unit
from bench.report.figures import _style
from bench.report.figures.figure import Annotation, Drawing, Figure, NothingToDraw
from bench.stats.intervals import contents
from bench.suites._cpu_grid import LADDER
from tools.control.kinds import OUTSIDE

if TYPE_CHECKING:
    from bench.stats.intervals import Estimate

TITLE = "The study's networks and those of timm and vit-pytorch, by kind"
OURS, THEIRS = "the study's best network", "the best of timm and vit-pytorch"


def draw(evidence: Evidence) -> Drawing:
    """A panel per kind, a line per side; each point is that side's best network at its best learning rate."""
    rows, estimates = _rows(evidence)
    if not rows:
        raise NothingToDraw("no kind has networks of both sides")
    table = pd.DataFrame(rows)
    scale, unit = common_flop_unit(list(table["flops"]))
    table = table.assign(x=table["flops"] / scale, percent=100 * table["accuracy"])
    annotations = []
    with _style.context():
        figure = _style.figure(columns=len(OUTSIDE))
        for axes, kind in zip(figure.subplots(1, len(OUTSIDE), sharey=True), OUTSIDE, strict=True):
            colour, marker = _style.look(kind, list(OUTSIDE))
            mine = table[table["kind"] == kind]
            looks: dict[str, dict[str, Any]] = {
                OURS: {"color": colour, "linestyle": "-", "marker": marker},
                THEIRS: {"color": _style.INK, "linestyle": "--", "marker": "x", "markeredgecolor": _style.INK},
            }
            for side, look in looks.items():
                line = mine[mine["side"] == side]
                sns.lineplot(x=line["x"], y=line["percent"], ax=axes, estimator=None, **look)
                axes.vlines(line["x"], 100 * line["low"], 100 * line["high"], colors=look["color"], alpha=0.5)
                for row in line.itertuples():
                    said = f"{row.series}\n{row.percent:.1f} %"
                    annotations.append(Annotation(axes=axes, x=float(row.x), y=float(row.percent), text=said))
            axes.set_title(kind, loc="left")
            axes.set(xlabel="", ylabel="Test accuracy [%]")
            _style.plain_log_x(axes, list(table["x"]), room=0.05)
        figure.supxlabel(f"Pre-training compute [{unit}s]", fontsize=_style.text(10))
        signs = ((OURS, "-", "o"), (THEIRS, "--", "x"))
        _style.legend(
            figure,
            [Line2D([], [], color=_style.INK, linestyle=dash, marker=mark, label=side) for side, dash, mark in signs],
        )
    return Drawing(
        figure=figure,
        data=table.drop(columns=["x", "percent"]),
        annotations=tuple(annotations),
        caption=(
            "Each point is the best network of a side at that budget, at the best of its learning rates; the figure's "
            "CSV names it.",
            contents(estimates),
        ),
        alt=f"{TITLE}: {', '.join(OUTSIDE)}.",
    )


def _rows(evidence: Evidence) -> tuple[list[dict[str, Any]], list[Estimate]]:
    """The best point of each side at each budget."""
    theirs = {model for of_kind in OUTSIDE.values() for model in of_kind}
    best: dict[tuple[str, str, int], tuple[Estimate, str, float]] = {}
    whole = evidence.swept or evidence  # with every learning rate
    for series in whole.on_axis("compute"):
        outside = series.last.model in theirs
        kind = next((k for k, models in OUTSIDE.items() if series.last.model in models), "")
        kind = kind or ("" if outside else kind_of(series.family) or "")
        for point in series.points:
            estimate = whole.estimate(point, HEADLINE)
            if kind not in OUTSIDE or estimate is None or not point.train_flops:
                continue
            place = (kind, THEIRS if outside else OURS, _rung(point.train_flops))
            if place not in best or estimate.value > best[place][0].value:
                best[place] = (estimate, series.label, point.train_flops)
    rows = [
        {
            "kind": kind,
            "side": side,
            "series": label,
            "flops": flops,
            "accuracy": e.value,
            "low": e.low,
            "high": e.high,
        }
        for (kind, side, _), (e, label, flops) in sorted(best.items())
    ]
    return rows, [e for e, _, _ in best.values()]


def _rung(flops: float) -> int:
    """The number of a budget on the ladder, whose budgets differ by factors of two."""
    return round(math.log2(flops / LADDER[0]))


FIGURE = Figure(title=TITLE, draw=draw)
