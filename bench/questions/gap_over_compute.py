"""Does one family gain on the other with more compute, on all images?

This is the question "gap over images" with compute in place of images; it is asked for the same pairs of families. The
gap is usually curved, so the least-squares slope is an average over the range.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from bench.analysis import catch_up
from bench.analysis.catch_up import Closing, HeldOut, by_law, finding_of, say
from bench.analysis.comparisons import compared_series, counts
from bench.analysis.evidence import Evidence
from bench.analysis.finding import Axis, Finding, Reason, Verdict
from bench.analysis.frontier_gap import frontier_gap
from bench.analysis.gap_series import gap_series
from bench.analysis.question import FACTS, Question
from bench.analysis.scaling_laws import Law, laws

NAME = "gap over compute"


def ask(evidence: Evidence) -> Iterator[Finding]:
    """Yield a finding for every two families that "gap over images" compares, if both have a fitted law over
    compute."""
    series = gap_series(evidence) if compared_series(evidence) else ()
    by_compute = laws(evidence, axis=Axis.COMPUTE) if series else {}
    for first, second in dict.fromkeys(line.families for line in series):
        if first in by_compute and second in by_compute:
            yield _over_compute(evidence, by_compute[first], by_compute[second])


def _over_compute(evidence: Evidence, first: Law, second: Law) -> Finding:
    """Return the finding on how the accuracy gap between the frontiers of two families changes with compute."""
    gap = frontier_gap(evidence, first, second)
    families = (first.family, second.family)
    if gap.slope is None:
        return Finding(
            question=NAME,
            subject=families,
            axis=Axis.COMPUTE,
            trend=gap.trend,
            verdict=Verdict.CANNOT_TELL,
            reasons=(Reason.TOO_FEW_POINTS,),
        )
    return finding_of(
        NAME,
        families,
        Axis.COMPUTE,
        gap.slope.value,
        gap.half,
        gap.trend,
        by_law(first, second),
        level=gap.slope.level,
        p=gap.p,
        n=counts(gap.slope, points=len(gap.trend)),
        excluded=gap.slope.excluded,
    )


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
    counts_together=True,
    sentence=partial(catch_up.sentence, x="compute"),
    shown_in=("laws",),
)
