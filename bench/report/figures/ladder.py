"""Figure of the gain of each change against compute: the gain at each budget of a ladder (a rung), with its interval;
the trend with its band; the forecast; and a line at zero."""

from __future__ import annotations

import numpy as np
import pandas as pd

from bench.analysis.evidence import Evidence
from bench.analysis.ladders import arms
from bench.core import formatting
from bench.report.figures import _style
from bench.report.figures.figure import Drawing, Figure, NothingToDraw

PLACES = 60  # points of a line


@_style.context()
def draw(evidence: Evidence) -> Drawing:
    """Draw the gain in points of accuracy against the baseline's training compute, in one panel for each change."""
    found = arms(evidence)
    if not found:
        raise NothingToDraw("no change has three rungs of two pairs of runs each")
    figure = _style.figure(width=3.6 * min(len(found), 2) + 1.0, height=3.4 * -(-len(found) // 2))
    panels = list(figure.subplots(-(-len(found) // 2), min(len(found), 2), squeeze=False, sharey=True).flat)
    rows = []
    for axes, arm in zip(panels, found, strict=False):
        at = evidence.forecast_at or arm.next_flops
        ends = min(arm.flops_R[0], at), max(arm.flops_R[-1], at)
        x = np.linspace(np.log2(ends[0]), np.log2(ends[1]), PLACES)
        line = [arm.found.at(float(place)) for place in x]
        low, high = (np.array([each.interval()[side][0] for each in line]) for side in (0, 1))
        axes.axhline(0.0, color="0.5", linewidth=0.8)
        axes.fill_between(2.0**x, low, high, alpha=0.2, linewidth=0)
        axes.plot(2.0**x, [each.value[0] for each in line], linewidth=1.2)
        for kind, flops, value in [
            *(("rung", flops, arm.found.rung(index)) for index, flops in enumerate(arm.flops_R)),
            ("forecast", at, arm.found.one_more_run(float(np.log2(at)))),
        ]:
            (bottom,), (top,) = value.interval()
            middle = float(value.value[0])
            hollow = {"markerfacecolor": "white"} if kind == "forecast" else {}
            bars = [[middle - bottom], [top - middle]]
            axes.errorbar([flops], [middle], yerr=bars, fmt="s" if hollow else "o", color="black", capsize=3, **hollow)
            about = {"change": arm.change, "kind": kind, "flops": flops}
            rows.append(about | {"gain": middle, "low": float(bottom), "high": float(top)})
        axes.set_xscale("log")
        axes.set_title(arm.change, loc="left")
        axes.set(xlabel="Training compute of the baseline [FLOPs]", ylabel="Gain [points]")
    for axes in panels[len(found) :]:
        axes.remove()
    seeds = min(arm.seeds for arm in found)
    return Drawing(
        figure=figure,
        data=pd.DataFrame(rows),
        caption=(
            "Accuracy of the change minus that of its baseline, paired by seed.",
            f"Dots: rungs, with 95% intervals of the paired t test (n = {seeds} seeds or more).",
            "Line and band: the trend over the logarithm of compute, with its 95% interval.",
            "Hollow: the forecast, with the interval of one more pair of runs.",
        ),
        alt="; ".join(
            f"{arm.change}: {arm.verdict}, {arm.found.rung(0).value[0]:+.1f} points at "
            f"{formatting.flops(arm.flops_R[0])}, {arm.found.rung(len(arm.flops_R) - 1).value[0]:+.1f} at "
            f"{formatting.flops(arm.flops_R[-1])}"
            for arm in found
        )
        + ".",
    )


FIGURE = Figure(title="Gain against compute", draw=draw)
