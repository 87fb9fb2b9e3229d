"""Published networks as one picture: error against training compute, and the same for families of one paper."""

from __future__ import annotations

from typing import Any

import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from bench.report.figures import _style
from bench.stats.crossing import pareto

UPSTREAM = {
    "ImageNet-1k": ("1.28M images (ImageNet-1k)", "#0072B2"),
    "ImageNet-21k": ("12M to 38M (ImageNet-21k)", "#E69F00"),
    "web": ("0.4 to 2.3 billion (web)", "#CC79A7"),
}
"""Group of upstream sets -> label, colour. Unions of sets count as ImageNet-21k."""
TICKS = (10, 12, 14, 16, 20, 25, 30, 40)  # percent
HOLLOW: dict[str, Any] = {"marker": "o", "color": "#666666", "markerfacecolor": "none"}


def draw(checkpoints: pd.DataFrame, paper: pd.DataFrame) -> Figure:
    """Left: every checkpoint whose recipe is known, by upstream set; dashed lines join what was best at its compute, of
    authors and years that differ. Right: families that one paper trained alike; solid lines.

    Args:
        checkpoints: `bench.cost.public_models.table()`. paper: its table "paper".
    """
    known = checkpoints[checkpoints["stages"] != ""].rename(columns={"train_exaflops": "exaflops"})
    known = known.assign(
        error=100 - known["in1k_top1"],
        upstream=known["pretrain_group"]
        .replace("merged sets", "ImageNet-21k")
        .map({k: v[0] for k, v in UPSTREAM.items()}),
        whole=known["complete"] & ~known["teacher"],
    )
    table_6 = paper[paper["model"].str.endswith("(Table 6)")].rename(columns={"train_exaflops_paper": "exaflops"})
    table_6 = table_6.assign(error=100 - table_6["in1k_top1"])
    colours = dict(UPSTREAM.values())
    with _style.context():
        figure = _style.figure(height=5.2)
        left, right = figure.subplots(1, 2, width_ratios=(3, 2), sharey=True)
        for (label, whole), rows in known.groupby(["upstream", "whole"]):
            face = {"facecolor": colours[label]} if whole else {"facecolor": "none", "edgecolor": colours[label]}
            sns.scatterplot(data=rows, x="exaflops", y="error", ax=left, s=18, alpha=0.6, linewidth=0.8, **face)
        for label, rows in known[known["whole"]].groupby("upstream"):
            best = rows.iloc[pareto(list(rows["exaflops"]), list(rows["error"]))]
            sns.lineplot(
                data=best,
                x="exaflops",
                y="error",
                ax=left,
                linestyle="--",
                linewidth=2,
                color=colours[label],
                estimator=None,
            )
        families = list(dict.fromkeys(table_6["family"]))
        looks = {family: _style.look(family, families) for family in families}
        colour_of, marker_of = ({family: look[i] for family, look in looks.items()} for i in (0, 1))
        where = {
            "data": table_6,
            "x": "exaflops",
            "y": "error",
            "hue": "family",
            "style": "family",
            "dashes": False,
            "estimator": None,
        }
        sns.lineplot(**where, ax=right, markersize=8, palette=colour_of, markers=marker_of)
        marks = [
            Line2D([], [], color=colour, marker="o", linestyle="", label=label) for label, colour in colours.items()
        ]
        marks.append(Line2D([], [], color="#666666", linestyle="--", label="the best at its compute"))
        marks.append(Line2D([], [], **HOLLOW, linestyle="", label="hollow: the cost is a lower bound"))
        left.legend(handles=marks, title="Pre-trained on", alignment="left", loc="lower left")
        right.legend(title=None)
        _finish(left, known["exaflops"], title="All authors, 2015 to 2026: not controlled")
        _finish(right, table_6["exaflops"], title="One paper, one recipe (ViT, Table 6): controlled")
    return figure


def _finish(axes: Axes, compute: pd.Series, *, title: str) -> None:
    axes.set(xscale="log", yscale="log", xlabel="training compute, exaFLOPs", title=title)
    axes.set_ylabel("top-1 error on ImageNet, % (log scale)")
    axes.set_yticks(TICKS, [str(tick) for tick in TICKS])
    axes.minorticks_off()
    _style.plain_log_x(axes, list(compute))
