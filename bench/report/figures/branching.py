"""Branches against trainings of their own: difference of accuracy at every budget, and the compute that was spent."""

from __future__ import annotations

import pandas as pd

from bench.analysis import branching
from bench.analysis.evidence import Evidence, family_rank
from bench.report.figures import _style
from bench.report.figures._contract import Drawing, NothingToDraw

SIDEWAYS = 1.05  # so that intervals of several models at one budget lie beside each other
TITLE = "Cool-down branches against trainings of their own"


@_style.context()
def draw(evidence: Evidence) -> Drawing:
    """One panel per way of training apart, and one of what was spent."""
    measures = branching.measures(evidence)
    if not measures:
        raise NothingToDraw("nothing was scored")
    measure = measures[0]
    contrasts = branching.contrasts(evidence, measure)
    savings = branching.savings(evidence)
    if not contrasts or not savings:
        raise NothingToDraw("no model was trained both by branches and apart")
    figure = _style.figure(height=3.9)
    axes = figure.subplots(1, len(contrasts) + 1, width_ratios=[3.0] * len(contrasts) + [2.2], squeeze=False)[0]
    families = sorted({s.family for s in savings}, key=family_rank)
    rows = []
    for panel, (way, found) in zip(axes, contrasts.items(), strict=False):
        panel.axhline(0.0, color="#444444", linewidth=1.0)
        for place, model in enumerate(dict.fromkeys(c.subject for c in found)):
            mine = [c for c in found if c.subject == model]
            colour, marker = _style.look(mine[0].family, families)
            panel.errorbar(
                [c.point.images_seen * SIDEWAYS**place for c in mine], [100 * c.estimate.value for c in mine],
                yerr=[0.0 if branching.same(c) else 100 * c.estimate.half for c in mine],
                color=colour, marker=marker, linewidth=1.2, label=model,
            )  # fmt: skip
            rows += [
                {"way": way, "model": model, "images_seen": c.point.images_seen, "measure": measure,
                 "difference": c.estimate.value, "low": c.estimate.low, "high": c.estimate.high,
                 "seeds": c.estimate.num_seeds}
                for c in mine
            ]  # fmt: skip
        _style.plain_log_x(panel, [c.point.images_seen for c in found])
        panel.set(title=f"Branch − trained {way}".replace(", ", ",\n"), xlabel="Images seen",
                  ylabel=f"Difference in {measure} accuracy [points]")  # fmt: skip
        if all(branching.same(c) for c in found):
            panel.set_ylim(-1.0, 1.0)  # else the axis would zoom into nothing
            panel.text(0.5, 0.56, "no difference,\nto the last digit", transform=panel.transAxes, ha="center")
    axes[-2].legend()
    for place, saving in enumerate(savings):
        colour, _ = _style.look(saving.family, families)
        axes[-1].barh(place, saving.flops, color=colour, height=0.6)
        axes[-1].text(0.02, place, f"{saving.flops:.2f}", va="center", color="white", fontweight="bold")
        rows.append({"way": "compute spent, branch / apart", "model": saving.model, "measure": "fraction",
                     "difference": saving.flops, "seeds": saving.seeds})  # fmt: skip
    labels = [f"{s.model}\n{s.horizons} budgets" for s in savings]
    axes[-1].set(title="Compute spent\non branches", xlabel="Fraction of training apart", xlim=(0.0, 1.0))
    axes[-1].set_yticks(range(len(savings)), labels)
    axes[-1].invert_yaxis()
    axes[-1].grid(axis="y", visible=False)
    level = f"{100 * evidence.level:.0f} %"
    return Drawing(
        figure=figure, data=pd.DataFrame(rows),
        caption=(
            f"Accuracy ({measure}) of the model cooled down from a shared trunk minus that of the model trained to the "
            f"same budget on its own, paired by seed, with {level} intervals over training seeds and test images "
            f"(n = {max(s.seeds for s in savings)} seeds); none where all scores are the same to the last digit. "
            "Right: training compute of all budgets on branches as a fraction of all trained apart, same schedule."
        ),
        alt=f"{TITLE}: differences at each budget for {len(savings)} models, and the fraction of compute spent.",
    )  # fmt: skip
