"""Branches against models trained on their own: difference of accuracy at every budget, and the compute spent."""

from __future__ import annotations

from typing import Any

import pandas as pd

from bench.analysis import branches
from bench.analysis.branches import identical
from bench.analysis.comparisons import PairedDifference
from bench.analysis.evidence import Evidence, family_rank
from bench.core.formatting import join
from bench.report.figures import _style
from bench.report.figures._contract import Drawing, NothingToDraw

SIDEWAYS = 1.05  # so that intervals of several models at one budget lie beside each other
TITLE = "Cool-down branches against models trained on their own"


@_style.context()
def draw(evidence: Evidence) -> Drawing:
    """One panel per other schedule with a difference anywhere, and one of what was spent."""
    measures = branches.measures(evidence)
    if not measures:
        raise NothingToDraw("nothing was scored")
    contrasts, savings = branches.contrasts(evidence, measures[0]), branches.savings(evidence)
    if not contrasts or not savings:
        raise NothingToDraw("no model was trained both with branches and separately")
    same = [name for name, found in contrasts.items() if all(identical(c) for c in found)]
    shown = {name: found for name, found in contrasts.items() if name not in same} or contrasts
    families = sorted({s.family for s in savings}, key=family_rank)
    figure = _style.figure(height=4.0)
    panels = figure.subplots(1, len(shown) + 1, width_ratios=[3.0] * len(shown) + [2.0], squeeze=False)[0]
    for axes, (name, found) in zip(panels, shown.items(), strict=False):
        _differences(axes, found, families)
        axes.set(
            title=f"Branch − own training, {name} schedule",
            xlabel="Images seen",
            ylabel=f"Difference in {measures[0]} accuracy [points]",
        )
    panels[0].legend()
    rows = [_row(name, measures[0], c) for name, found in contrasts.items() for c in found]
    for place, saving in enumerate(savings):
        panels[-1].barh(place, saving.flops, color=_style.look(saving.family, families)[0], height=0.6)
        panels[-1].text(0.02, place, f"{saving.flops:.2f}", va="center", color="white", fontweight="bold")
        rows.append(
            {
                "schedule": "compute of branches over own",
                "model": saving.model,
                "measure": "ratio",
                "difference": saving.flops,
                "seeds": saving.seeds,
            }
        )
    panels[-1].set(title="Compute spent on branches", xlabel="Fraction of own training", xlim=(0.0, 1.0))
    panels[-1].set_yticks(range(len(savings)), [f"{s.model}\n{s.budgets} budgets" for s in savings])
    panels[-1].invert_yaxis()
    panels[-1].grid(axis="y", visible=False)
    exact = f" With the {join(same)} schedule all scores are the same to the last digit." if same else ""
    return Drawing(
        figure=figure,
        data=pd.DataFrame(rows),
        caption=(
            f"Accuracy ({measures[0]}) of the model cooled down from a shared trunk minus that of the model trained to "
            f"the same budget on its own, paired by seed, with {evidence.level:.0%} intervals over training seeds and "
            f"test images (n = {max(s.seeds for s in savings)} seeds).{exact} Right: training compute of all budgets "
            "on branches as a fraction of all trained on their own, same schedule."
        ),
        alt=f"{TITLE}: differences at each budget for {len(savings)} models, and the fraction of compute spent.",
    )


def _differences(axes: Any, found: list[PairedDifference], families: list[str]) -> None:
    axes.axhline(0.0, color="#444444", linewidth=1.0)
    for place, model in enumerate(dict.fromkeys(c.pair.model for c in found)):
        mine = [c for c in found if c.pair.model == model]
        colour, marker = _style.look(mine[0].family, families)
        axes.errorbar(
            [c.pair.point.images_seen * SIDEWAYS**place for c in mine],
            [100 * c.estimate.value for c in mine],
            yerr=[0.0 if identical(c) else 100 * c.estimate.half for c in mine],
            color=colour,
            marker=marker,
            linewidth=1.2,
            label=model,
        )
    _style.plain_log_x(axes, [c.pair.point.images_seen for c in found])


def _row(name: str, measure: str, c: PairedDifference) -> dict[str, Any]:
    return {
        "schedule": name,
        "model": c.pair.model,
        "images_seen": c.pair.point.images_seen,
        "measure": measure,
        "difference": c.estimate.value,
        "low": c.estimate.low,
        "high": c.estimate.high,
        "seeds": c.estimate.num_seeds,
    }
