"""Do the main study's networks stand for their family: is none of somebody else's more than two points better?

Findings:
    subject: a kind of family. Each side is represented at a budget by its best network at its best learning rate.
    estimate: the study's best minus the best of others, at the budget where that is least.
    trend: the same at every budget.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from bench.analysis import wording
from bench.analysis.comparisons import counts
from bench.analysis.evidence import HEADLINE, Evidence
from bench.analysis.families import kind_of
from bench.analysis.finding import Axis, Finding, Reason, Unit, Verdict
from bench.analysis.frontiers import Gaps, along_compute
from bench.analysis.question import Question
from bench.core.phrase import phrase
from bench.stats.intervals import Estimate
from tools.control.kinds import OUTSIDE

NAME = "stands for its family"
TOLERATED = 0.02  # accuracy by which another network may be better


def ask(evidence: Evidence) -> Iterator[Finding]:
    """Every kind of family of which there are networks of both sides, with every learning rate. The first is the
    study's title: the kind that stands least."""
    found = _found(evidence.swept or evidence)
    yield from sorted(found, key=lambda f: math.inf if f.estimate is None else f.estimate)


def _found(whole: Evidence) -> Iterator[Finding]:
    series = whole.on_axis("compute")
    theirs = {model for of_kind in OUTSIDE.values() for model in of_kind}
    for kind, of_kind in OUTSIDE.items():
        own = [s for s in series if s.last.model not in theirs and kind_of(s.family) == kind]
        others = [s for s in series if s.last.model in of_kind]
        if not (own and others):
            continue
        gaps = along_compute(whole, own, others, (kind, "others"), HEADLINE)
        if gaps is None:
            yield too_few(NAME, kind)
            continue
        least = min((gap.estimate for gap in gaps.gaps), key=lambda e: e.value)
        yield of_gaps(
            gaps, least, Verdict.YES if least.value >= -TOLERATED else Verdict.NO, question=NAME, subject=(kind,)
        )


def too_few(question: str, *subject: str) -> Finding:
    """An answer without scores to compare."""
    return Finding(question=question, subject=subject, verdict=Verdict.CANNOT_TELL, reasons=(Reason.TOO_FEW_SCORES,))


def of_gaps(gaps: Gaps, e: Estimate, verdict: Verdict, **more: Any) -> Finding:
    """A finding whose trend is the gap of two sides over compute, and whose estimate is that at one budget."""
    return Finding(
        axis=Axis.COMPUTE,
        verdict=verdict,
        trend=gaps.trend,
        quantity="accuracy difference",
        unit=Unit.SHARE,
        estimate=e.value,
        low=e.low,
        high=e.high,
        level=e.level,
        n=counts(e, steps=len(gaps.gaps)),
        excluded=e.excluded,
        **more,
    )


def say(f: Finding) -> list[str]:
    """One sentence for each budget."""
    said = []
    for p in f.trend:
        side = "ahead of" if p.estimate >= 0 else "behind"
        by = wording.size(p.estimate, p.low, p.high)
        said.append(f"At {wording.place(f, p.x)}: {p.first} is {by} {side} {p.second}.")
    return said


def sentence(f: Finding) -> str:
    """At the budget where it does worst."""
    estimate, best = wording.or_nan(f.estimate), f"the study's best {f.subject[0]} is"
    theirs = "the best of timm and vit-pytorch"
    if abs(estimate) < 0.0005:  # half of the last digit that is shown
        return phrase(f"At every budget {best} at least level with {theirs}, at the closest ", wording.amount(f))
    if estimate > 0:
        return phrase(f"At every budget {best} ahead of {theirs}, at the closest by ", wording.amount(f))
    return phrase(f"At one budget {best} behind {theirs}, by ", wording.amount(f))


QUESTION = Question(
    name=NAME,
    label="Stands for its family?",
    text="Is no network of timm or vit-pytorch more than two points better than the study's own of its kind?",
    yes="stands",
    no="is beaten",
    ask=ask,
    say=say,
    order=1,
    sentence=sentence,
    shown_in=("ours-and-theirs",),
)
"""The smallest difference over the budgets decides: a family that is beaten at one budget does not stand there."""
