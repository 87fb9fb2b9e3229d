"""Does the lead of hybrids (a ViT behind the first layers of a ResNet) over ViT shrink with compute?

Findings:
    subject: the hybrid family, the ViT family.
    estimate: accuracy by which the hybrids' lead shrinks per tenfold compute.
    trend: accuracy of hybrids minus that of ViT at every point of the hybrids' frontier that is inside ViT's range of
        compute.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from bench.analysis import wording
from bench.analysis.evidence import Evidence
from bench.analysis.families import HYBRID, VIT
from bench.analysis.finding import Axis, Counts, Finding, Reason, Unit, Verdict
from bench.analysis.frontier_gap import frontier_gap
from bench.analysis.law_findings import law_finding, laws_of, of_kind
from bench.analysis.published import SUITE as PAPER
from bench.analysis.question import Question
from bench.analysis.scaling_laws import Law
from bench.analysis.wording import Number
from bench.core.phrase import phrase

NAME = "hybrid advantage shrinks"
NO_ADVANTAGE = "no advantage"  # reason of a finding: hybrids were not ahead at the start of the range


def ask(evidence: Evidence) -> Iterator[Finding]:
    """Yield one finding, if both families have a fitted law. For the ViT paper's printed table yield none, because
    there the question "as claimed" gives the answer, at equal error."""
    known = laws_of(evidence, Axis.COMPUTE) if evidence.suite != PAPER else {}
    hybrid, vit = of_kind(known, HYBRID), of_kind(known, VIT)
    if hybrid and vit:
        yield advantage_shrinks(evidence, hybrid, vit)


def advantage_shrinks(evidence: Evidence, hybrid: Law, vit: Law) -> Finding:
    """Return the finding on how the hybrids' lead over ViT changes with compute, from the gap between the two
    frontiers."""
    gap = frontier_gap(evidence, hybrid, vit)
    finding = partial(law_finding(NAME, hybrid, vit), n=Counts(points=len(gap.trend)), trend=gap.trend)
    if gap.slope is None:
        return finding(verdict=Verdict.CANNOT_TELL, reasons=(Reason.TOO_FEW_POINTS,))
    slope = gap.slope.value
    low, high = -slope - gap.half, -slope + gap.half
    log_x = np.log10([point.x for point in gap.trend])
    at_first = float(np.mean([point.estimate for point in gap.trend]) + slope * (log_x[0] - log_x.mean()))
    why: list[str] = [Reason.WITHIN_INTERVAL] if low <= 0 <= high else []
    if low > 0 and at_first <= 0:
        why = [NO_ADVANTAGE]
    verdict = Verdict.CANNOT_TELL if why else Verdict.YES if low > 0 else Verdict.NO
    return finding(
        verdict=verdict,
        reasons=tuple(why),
        quantity="accuracy lost per tenfold compute",
        unit=Unit.SHARE,
        estimate=-slope,
        low=low,
        high=high,
        level=gap.slope.level,
        p=gap.p,
        excluded=gap.slope.excluded,
    )


def say(f: Finding) -> list[str]:
    return [f"{f.subject[0]} minus {f.subject[1]} on the frontiers: {wording.trend(f)}."] if f.trend else []


def number(f: Finding) -> Number:
    """Return, as it is printed, the change of the hybrids' lead per tenfold compute: the estimate with the opposite
    sign."""
    if f.estimate is None:
        return wording.number(f)
    return wording.share(-f.estimate, None if f.high is None else -f.high, None if f.low is None else -f.low)


QUESTION = Question(
    name=NAME,
    label="Hybrids' lead shrinks?",
    text="Does the hybrids' lead shrink with compute?",
    yes="shrinks",
    no="grows",
    ask=ask,
    say=say,
    reasons={NO_ADVANTAGE: "Hybrids were not ahead, so there is no lead to shrink."},
    order=140,
    about_two=True,
    counts_together=True,
    number=number,
    sentence=lambda f: phrase(
        f"The lead of {f.subject[0]} over {f.subject[1]} {'shrinks' if f.verdict == Verdict.YES else 'grows'} by ",
        wording.amount(f),
        " with every tenfold of compute",
    ),
    shown_in=("frontier",),
)
