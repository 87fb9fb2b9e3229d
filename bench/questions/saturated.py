"""Does the family still improve at its largest compute?

Findings:
    estimate: exponent c of a power law through the family's largest budgets; doubling compute lowers its error by a
        fraction 1 - 2^-c. None if these budgets are of several models, or contradict the law.
    YES: the family has stopped improving.
    evidence: `TopOfRange`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from bench.analysis import wording
from bench.analysis.evidence import Evidence
from bench.analysis.finding import TREND_POINTS, Axis, Counts, Finding, Item, Reason, SeveralModels, Verdict
from bench.analysis.law_findings import SAME_COMPUTE, deviation, law_finding, laws_of
from bench.analysis.question import Question
from bench.analysis.scaling_laws import DRAWS, Law
from bench.analysis.wording import Number
from bench.core.errors import UserError
from bench.core.formatting import flops, plural, signed
from bench.core.phrase import phrase
from bench.laws import bootstrap, fit
from bench.laws.forms import POWER
from bench.laws.lack_of_fit import lack_of_fit

NAME = "saturated"
BENDS_AGAINST_TREND = "points bend against the trend"
"""Reason of a finding: no run with more compute than `TopOfRange.best`, up to `TopOfRange.most`, was better. After
another reason it is only a remark."""
DOUBLING = 2.0  # runs without improvement up to this many times the best run's compute make the answer undecided
SATURATED_BELOW = 0.02
"""A family with a smaller exponent counts as saturated: doubling compute lowers its error by less than 1.4 % of
itself."""


@dataclass(frozen=True, kw_only=True)
class TopOfRange(Item):
    """The largest budgets of a family, to which a power law was fitted.

    Attributes:
        budgets: number of these budgets.
        low, high: the smallest and the largest of them, in FLOP.
        best: compute of the family's best run, in FLOP.
        most: largest compute that was tried, in FLOP.
    """

    budgets: int
    low: float
    high: float
    best: float
    most: float


def ask(evidence: Evidence) -> Iterator[Finding]:
    for law in laws_of(evidence, Axis.COMPUTE).values():
        yield saturated(law)


def saturated(law: Law) -> Finding:
    """Return the finding on whether a family has stopped improving at the top of its range of compute. YES: the whole
    interval of the exponent is below `SATURATED_BELOW`. NO: the whole interval is above 0, that is, the error still
    falls.

    A law fitted to the whole range cannot answer this, because a power law always improves. So a power law is fitted to
    the upper part of the frontier only. Runs beyond the end of the frontier, which took more compute without being
    better, belong to the upper part; if they span a doubling of compute, the answer is undecided even if the exponent
    says NO.

    Args:
        law: the family's law over its whole range, with its points.
    """
    finding, data = law_finding(NAME, law), law.within.fit.points
    frontier = np.unique(law.frontier[0])
    best = float(frontier[-1])
    upper = np.union1d(frontier, data.x[0][data.x[0] > best])
    top = (upper if len(upper) >= TREND_POINTS else np.unique(data.x[0]))[-TREND_POINTS:]
    part = data.take(np.isin(data.x[0], top))
    about = TopOfRange(budgets=len(top), low=float(top[0]), high=float(top[-1]), best=best, most=law.most)
    try:
        made = fit.fit(part, POWER, loss="squares")
    except UserError:
        return finding(verdict=Verdict.CANNOT_TELL, reasons=(Reason.FIT_FAILED,), evidence=(about,))
    low, high = bootstrap.resample(made, draws=2 * DRAWS, restarts=0).parameters()["c"]
    verdict = Verdict.YES if high < SATURATED_BELOW else Verdict.NO if low > 0 else Verdict.CANNOT_TELL
    reasons: list[str] = [Reason.WITHIN_INTERVAL] if verdict == Verdict.CANNOT_TELL else []
    if law.most > best * SAME_COMPUTE:
        reasons.append(BENDS_AGAINST_TREND)
        if verdict == Verdict.NO and law.most >= DOUBLING * best:
            verdict = Verdict.CANNOT_TELL
    means = law.group_means.take(np.isin(law.group_means.x, top))
    missed = deviation((law.family,), lack_of_fit(means, made.predict(means.x), parameters=made.form.size))
    models = tuple(dict.fromkeys(m for (x, _), m in zip(law.best, law.best_models, strict=False) if x in top))
    several = [SeveralModels(family=law.family, models=models)] if len(models) > 1 else []
    if several or missed:
        why = (*([Reason.SEVERAL_MODELS] if several else []), *([Reason.LACK_OF_FIT] if missed else []))
        kept = tuple(reason for reason in reasons if reason == BENDS_AGAINST_TREND)
        return finding(verdict=Verdict.CANNOT_TELL, reasons=(*why, *kept), evidence=(about, *several, *missed))
    return finding(
        verdict=verdict,
        reasons=tuple(reasons),
        quantity="exponent",
        estimate=made.parameters["c"],
        low=low,
        high=high,
        n=Counts(points=len(means.x), runs=len(part)),
        evidence=(about,),
    )


def say(f: Finding) -> list[str]:
    top = wording.first(f, TopOfRange)
    if top is None:
        return []
    return [f"Fitted to the {plural(top.budgets, 'largest budget')}, {wording.between(f, top.low, top.high, 'to')}."]


def _bends(f: Finding) -> str:
    top = wording.first(f, TopOfRange)
    return f"Accuracy did not improve above {flops(top.best)}; the largest run is {flops(top.most)}." if top else ""


def _within(f: Finding) -> str:
    return "The interval includes both improvement and no improvement."


def number(f: Finding) -> Number:
    """Return the relative change of the error with a doubling of compute as it is printed, in percent, with its
    interval."""
    if f.estimate is None:
        return wording.number(f)
    change, best, worst = (2 ** -wording.or_nan(v) - 1 for v in (f.estimate, f.high, f.low))
    return wording.shown(change, signed(change), "%", f"[{signed(best)}, {signed(worst)}]")


QUESTION = Question(
    name=NAME,
    label="Error with 2× compute?",
    text="Does the family still improve at its largest compute?",
    yes="saturated",
    no="improves",
    tones=("no", "yes"),
    ask=ask,
    say=say,
    reasons={Reason.WITHIN_INTERVAL: _within, BENDS_AGAINST_TREND: _bends},
    items=(TopOfRange,),
    order=170,
    number=number,
    sentence=lambda f: phrase(
        f"{wording.subject(f)} {'no longer improves' if f.verdict == Verdict.YES else 'still improves'} at its ",
        "largest compute: its error changes by ",
        number(f).text,
        " with every doubling",
    ),
    shown_in=("laws",),
)
