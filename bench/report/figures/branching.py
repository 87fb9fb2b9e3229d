"""Figure of branches against models trained on their own: the difference of accuracy at every budget, and the compute
spent. A branch is a cool-down of the learning rate to zero from a training that all budgets share."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pandas as pd
import seaborn as sns
import seaborn.objects as so

from bench.analysis import branches
from bench.analysis.branches import identical
from bench.analysis.comparisons import PairedDifference
from bench.analysis.evidence import Evidence, family_rank
from bench.core.formatting import join
from bench.core.measure import measure_text
from bench.report.figures import _style
from bench.report.figures.figure import Drawing, Figure, NothingToDraw

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SPENT_COLUMN = "compute of branches over own"
SIDEWAYS = 1.05  # factor on x from one model to the next, so that intervals at one budget lie beside each other
TITLE = "Cool-down branches against models trained on their own"


@_style.context()
def draw(evidence: Evidence) -> Drawing:
    """Draw a panel for each learning rate schedule with which models were also trained on their own, except schedules
    with exactly the accuracies of the branches; and a panel of the compute spent."""
    measures = branches.measures(evidence)
    if not measures:
        raise NothingToDraw("nothing was scored")
    contrasts, savings = branches.contrasts(evidence, measures[0]), branches.savings(evidence)
    if not contrasts or not savings:
        raise NothingToDraw("no model was trained both with branches and separately")
    same = [name for name, differences in contrasts.items() if all(identical(c) for c in differences)]
    families = sorted({s.family for s in savings}, key=family_rank)
    spent = {"schedule": SPENT_COLUMN, "measure": "ratio"}
    rows = [
        *(_row(name, measures[0], c) for name, differences in contrasts.items() for c in differences),
        *(spent | {"model": s.model, "difference": s.flops, "seeds": s.seeds} for s in savings),
    ]
    looks = {s.model: _style.look(s.family, families) for s in savings}
    shown = {name: differences for name, differences in contrasts.items() if name not in same}
    across = _style.columns(len(shown) + 1)
    figure = _style.figure(columns=across, height=3.8 * -(-(len(shown) + 1) // across))
    panels = list(figure.subplots(-(-(len(shown) + 1) // across), across, squeeze=False).flat)
    for axes, (name, differences) in zip(panels, shown.items(), strict=False):
        _differences(axes, differences, looks)
        axes.set_title(f"Own trainings: {name} schedule", loc="left")
        axes.set(xlabel="Images seen", ylabel="Branches' lead [points]")
    limits = [axes.get_ylim() for axes in panels[: len(shown)]]
    for axes in panels[: len(shown)]:
        axes.set_ylim(min(low for low, _ in limits), max(high for _, high in limits))
    _style.legend(figure, _style.handles(looks))
    spent_on = panels[len(shown)]
    for axes in panels[len(shown) + 1 :]:
        axes.remove()
    names = [f"{s.model}\n{s.budgets} budgets" for s in savings]
    shares = [s.flops for s in savings]
    palette = {name: looks[s.model][0] for name, s in zip(names, savings, strict=True)}
    sns.barplot(x=shares, y=names, hue=names, palette=palette, saturation=1, width=0.6, legend=False, ax=spent_on)
    for place, share in enumerate(shares):
        spent_on.text(0.02, place, f"{share:.2f}", va="center", color="white", fontweight="bold")
    spent_on.set_title("Compute spent on branches", loc="left")
    spent_on.set(xlabel="Fraction of own training", ylabel="", xlim=(0.0, 1.0))
    spent_on.grid(axis="y", visible=False)
    exact = f" With the {join(same)} schedule all scores are the same to the last digit." if same else ""
    return Drawing(
        figure=figure,
        data=pd.DataFrame(rows),
        caption=(
            f"Accuracy ({measure_text(measures[0])}) of the model cooled down from a shared training minus that of the "
            "model trained to the same budget on its own, paired by seed, with "
            f"{evidence.level:.0%} intervals over training seeds and test images (n = {max(s.seeds for s in savings)} "
            f"seeds).{exact} Right: training compute of all budgets "
            "on branches as a fraction of all trained on their own, same schedule. Peak rates are alike: a "
            "cosine falls from the start, a branch in its cool-down alone."
        ),
        alt=f"{TITLE}: differences at each budget for {len(savings)} models, and the fraction of compute spent.",
    )


def _differences(axes: Axes, differences: list[PairedDifference], looks: dict[str, tuple[str, str]]) -> None:
    """Draw differences of accuracy (branch minus own training) as points with intervals. Where several models have one
    budget, their points lie beside each other. `looks`: model -> (colour, marker)."""
    axes.axhline(0.0, color="#444444", linewidth=1.0)
    place = {model: SIDEWAYS**number for number, model in enumerate(dict.fromkeys(c.pair.model for c in differences))}
    table = pd.DataFrame(
        {
            "model": c.pair.model,
            "images": c.pair.point.images_seen * place[c.pair.model],
            "points": 100 * c.estimate.value,
            "half": 0.0 if identical(c) else 100 * c.estimate.half,
        }
        for c in differences
    )
    (
        so.Plot(
            table.assign(low=table["points"] - table["half"], high=table["points"] + table["half"]),
            x="images",
            y="points",
            ymin="low",
            ymax="high",
            color="model",
        )
        .scale(
            color=so.Nominal({model: colour for model, (colour, _) in looks.items()}),
            marker=so.Nominal({model: marker for model, (_, marker) in looks.items()}),
        )
        .add(so.Range(linewidth=1.2), legend=False)
        .add(so.Dot(pointsize=7, edgecolor="w"), marker="model", legend=False)
        .theme(_style.theme())
        .on(axes)
        .plot()
    )
    _style.plain_log_x(axes, [c.pair.point.images_seen for c in differences])


def _row(name: str, measure: str, c: PairedDifference) -> dict[str, Any]:
    return {
        "schedule": name,
        "model": c.pair.model,
        "images_seen": c.pair.point.images_seen,
        "measure": measure,
        "difference": c.estimate.value,
        "low": math.nan if identical(c) else c.estimate.low,
        "high": math.nan if identical(c) else c.estimate.high,
        "seeds": c.estimate.num_seeds,
    }


FIGURE = Figure(title=TITLE, draw=draw)
