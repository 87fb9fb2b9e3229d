"""Does one family gain on the other with more compute, on all images?

The gap over images, per tenfold compute. Asked where that is.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial

import numpy as np

from bench.analysis import catch_up
from bench.analysis.catch_up import Closing, HeldOut, by_law, finding_of, say, slope_of
from bench.analysis.comparisons import compared_series
from bench.analysis.evidence import Evidence
from bench.analysis.finding import TREND_POINTS, Axis, Finding, Reason, TrendPoint, Verdict
from bench.analysis.gap_series import gap_series
from bench.analysis.question import FACTS, Question
from bench.analysis.scaling_laws import Law, laws
from bench.stats.bootstrap import LAW_LEVEL
from bench.stats.intervals import t_quantile

NAME = "gap over compute"


def ask(evidence: Evidence) -> Iterator[Finding]:
    """Between the frontiers of families whose gap over images is asked for as well."""
    series = gap_series(evidence) if compared_series(evidence) else ()
    by_compute = laws(evidence, axis=Axis.COMPUTE) if series else {}
    for first, second in dict.fromkeys(line.families for line in series):
        if first in by_compute and second in by_compute:
            yield _over_compute(by_compute[first], by_compute[second])


def _over_compute(first: Law, second: Law) -> Finding:
    """The gap between frontiers: every place of the first's inside the second's range, interpolated in log compute."""
    (x, own), (at, other) = first.frontier, second.frontier
    inside = (x >= at[0]) & (x <= at[-1])
    x, gaps = x[inside], np.interp(np.log(x[inside]), np.log(at), other) - own[inside]
    trend = [TrendPoint(x=float(a), estimate=float(b)) for a, b in zip(x, gaps, strict=True)]
    families = (first.family, second.family)
    if len(trend) < TREND_POINTS:
        return Finding(
            question=NAME,
            subject=families,
            axis=Axis.COMPUTE,
            trend=tuple(trend),
            verdict=Verdict.CANNOT_TELL,
            reasons=(Reason.TOO_FEW_POINTS,),
        )
    noise = t_quantile(max(1, first.group_means.freedom), LAW_LEVEL) * math.hypot(first.noise, second.noise)
    slope, half = slope_of(x, gaps, [noise] * len(x), level=LAW_LEVEL)
    return finding_of(NAME, families, Axis.COMPUTE, slope, half, trend, by_law(first, second), level=LAW_LEVEL)


QUESTION = Question(
    name=NAME,
    label="Gains with 10× compute?",
    text="Does one family gain on the other with more compute, on all images?",
    yes="{} gains",
    no="{} gains",
    tones=FACTS,
    ask=ask,
    say=say,
    items=(Closing, HeldOut),
    order=101,
    about_two=True,
    sentence=partial(catch_up.sentence, x="compute"),
    shown_in=("laws",),
)
