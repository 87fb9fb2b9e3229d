"""Does the hybrids' lead shrink with compute?

Findings:
    subject: hybrid, ViT.
    estimate: accuracy that the lead loses per tenfold compute.
    trend: first - second at every hybrid on the frontier inside ViT's range.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from bench.analysis import wording
from bench.analysis.evidence import Evidence
from bench.analysis.families import HYBRID, VIT
from bench.analysis.finding import TREND_POINTS, Axis, Counts, Finding, Reason, TrendPoint, Unit, Verdict
from bench.analysis.law_findings import law_finding, laws_of, of_kind
from bench.analysis.published import SUITE as PAPER
from bench.analysis.question import Question
from bench.analysis.scaling_laws import Law
from bench.analysis.wording import Number
from bench.stats.bootstrap import LAW_LEVEL
from bench.stats.intervals import t_quantile

NAME = "hybrid advantage shrinks"
NO_ADVANTAGE = "no advantage"  # a reason: hybrids never led


def ask(evidence: Evidence) -> Iterator[Finding]:
    """One finding; of the paper's printed table none: there "as claimed" answers, at equal error."""
    known = laws_of(evidence, Axis.COMPUTE) if evidence.suite != PAPER else {}
    hybrid, vit = of_kind(known, HYBRID), of_kind(known, VIT)
    if hybrid and vit:
        yield advantage_shrinks(hybrid, vit)


def advantage_shrinks(hybrid: Law, vit: Law) -> Finding:
    """The trend of the hybrids' lead over compute: every hybrid on the frontier against ViT's frontier at its compute.

    ViT's frontier is interpolated between its points (in log compute); hybrids outside its range are left out.
    """
    (x, y), (at, own) = vit.frontier, hybrid.frontier
    inside = (at >= x[0]) & (at <= x[-1])
    at, leads = at[inside], np.interp(np.log(at[inside]), np.log(x), y) - own[inside]
    trend = tuple(TrendPoint(x=float(f), estimate=float(lead)) for f, lead in sorted(zip(at, leads, strict=True)))
    finding = partial(law_finding(NAME, hybrid, vit), n=Counts(points=len(at)), trend=trend)
    if len(at) < TREND_POINTS:
        return finding(verdict=Verdict.CANNOT_TELL, reasons=(Reason.TOO_FEW_POINTS,))
    log_x = np.log10(at)
    (slope, intercept), covariance = np.polyfit(log_x, leads, 1, cov=True)
    known = np.hypot(vit.noise, hybrid.noise) / (
        log_x.std() * np.sqrt(len(at))
    )  # the slope's error by the noise of points
    half = t_quantile(len(at) - 2, LAW_LEVEL) * max(float(np.sqrt(covariance[0, 0])), known)
    low, high = -slope - half, -slope + half
    why: list[str] = [Reason.WITHIN_INTERVAL] if low <= 0 <= high else []
    if low > 0 and intercept + slope * log_x.min() <= 0:
        why = [NO_ADVANTAGE]
    verdict = Verdict.CANNOT_TELL if why else Verdict.YES if low > 0 else Verdict.NO
    return finding(
        verdict=verdict,
        reasons=tuple(why),
        quantity="accuracy lost per tenfold compute",
        unit=Unit.SHARE,
        estimate=float(-slope),
        low=float(low),
        high=float(high),
    )


def say(f: Finding) -> list[str]:
    return [f"{f.subject[0]} minus {f.subject[1]} on the frontiers: {wording.trend(f)}."] if f.trend else []


def number(f: Finding) -> Number:
    """The change of the lead: what it loses with the other sign."""
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
    number=number,
    sentence=lambda f: (
        f"The lead of {f.subject[0]} over {f.subject[1]} {'shrinks' if f.verdict == Verdict.YES else 'grows'} by "
        f"{wording.amount(f)} with every tenfold of compute"
    ),
    shown_in=("frontier",),
)
