"""Figure: error of published checkpoints against training and inference compute, by group of pre-training sets."""

from __future__ import annotations

import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from bench.analysis.evidence import Evidence
from bench.published import drawing, public_evidence
from bench.report.figures import _style
from bench.report.figures.figure import Annotation, Drawing, Figure
from bench.stats.pareto import pareto

TITLE = "Error against compute, all authors, 2015 to 2026: not controlled"
NAMED = (0.15, 0.5, 1.0)  # places along each frontier, 0 to 1, whose networks are named
AXES = {"train_exaflops": "Training compute [exaFLOPs]", "gmacs": "Inference [10⁹ MACs per image]"}


def draw(evidence: Evidence) -> Drawing:
    """Draw a panel for training compute and one for inference compute. Lines join the checkpoints with the lowest error
    at their compute.

    Raises:
        NothingToDraw: the evidence is not that of published networks.
    """
    drawing.expect_public(evidence)
    known = public_evidence.checkpoints()
    known = known.assign(whole=known["complete"] & ~known["teacher"])
    with _style.context():
        lines = 2 // _style.columns(2)
        figure = _style.figure(height=5.2 + 2 * (lines - 1))
        panels = figure.subplots(lines, 2 // lines, sharey=True)
        best = [row for axes, cost in zip(panels, AXES, strict=True) for row in _panel(axes, known, cost)]
        panels[1].set_ylabel(panels[0].get_ylabel() if lines > 1 else "")
        hollow = drawing.look(_style.GREY, controlled=False) | drawing.DOT
        handles = [
            *drawing.upstream_handles(),
            Line2D([], [], color=_style.GREY, linestyle="--", label="best at its compute"),
            Line2D([], [], **hollow, label="hollow: cost is a lower bound, or it had a teacher"),
        ]
        _style.legend(figure, handles, columns=3)
    columns = [
        "model",
        "image_size",
        "family",
        "upstream",
        *AXES,
        "error",
        "complete",
        "teacher",
    ]
    return Drawing(
        figure=figure,
        data=known[columns],
        annotations=tuple(best),
        caption=(
            f"{len(known):,} results of {known['model'].nunique()} checkpoints with a sourced recipe. Dashed: what is "
            "best at its cost, without those that are hollow. Authors, years, recipes and test sizes differ.",
            drawing.QUOTED,
        ),
        alt=f"{TITLE}: {len(known)} results.",
    )


def _panel(axes: Axes, known: pd.DataFrame, cost: str) -> list[Annotation]:
    """Draw one panel into `axes`; return the annotations of the points on its lines.

    Args:
        known: checkpoints with a known recipe, one result per row.
        cost: column of the cost on the x axis, a key of AXES.
    """
    annotations, named, curves = [], [], []
    for name, (_, colour) in drawing.UPSTREAM.items():
        rows = known[known["upstream"] == name]
        for whole, face in ((True, colour), (False, "none")):
            dots = rows[rows["whole"] == whole]
            look = {
                "facecolor": face,
                "edgecolor": colour,
                "s": 11,
                "alpha": 0.6,
                "linewidth": 0.7,
                "rasterized": True,
            }
            sns.scatterplot(data=dots, x=cost, y="error", ax=axes, legend=False, **look)
        solid = rows[rows["whole"]]
        best = solid.iloc[pareto(list(solid[cost]), list(solid["error"]))]
        axes.plot(best[cost], best["error"], linewidth=1.8, **drawing.look(colour, controlled=False))
        curves.append(list(zip(best[cost], best["error"], strict=True)))
        for place in sorted({round(share * (len(best) - 1)) for share in NAMED}) if len(best) > 1 else ():
            row = best.iloc[place]
            named.append((row[cost], row["error"], row["model"].partition(".")[0], colour))
        for row in best.to_dict("records"):
            said = f"{row['model']}, {row['image_size']} px\n{row['error']:.1f} % error\n{row['source']}"
            annotations.append(Annotation(axes=axes, x=row[cost], y=row["error"], text=said))
    drawing.error_axis(axes, label="ImageNet top-1 error [%]")
    _style.plain_log_x(axes, list(known[cost]))
    axes.set_xlabel(AXES[cost])
    _style.name_points(axes, named, curves=curves)
    return annotations


FIGURE = Figure(title=TITLE, draw=draw)
