"""Which kind of family is ahead at a budget, if every network has the best learning rate for that budget?

The main study trains a network once for all budgets, at one rate. Here each kind is represented at each budget by the
best of its networks, this project's and others', at the best of their rates: what the main study's answer would be if
rates and networks had been chosen at every budget.

Findings:
    subject: two kinds of families.
    estimate: none; the trend is first - second at every budget.
    leader: who is ahead at the largest.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

from bench.analysis import wording
from bench.analysis.evidence import HEADLINE, Evidence
from bench.analysis.families import kind_of
from bench.analysis.finding import Finding, Verdict
from bench.analysis.frontiers import along_compute
from bench.analysis.question import Question
from bench.core.phrase import phrase
from tools.control.kinds import OUTSIDE
from tools.control.questions.stands_for_its_family import of_gaps, say, too_few

NAME = "ahead at own rates"


def ask(evidence: Evidence) -> Iterator[Finding]:
    """Every pair of kinds, with every learning rate."""
    whole = evidence.swept or evidence
    theirs = {model: kind for kind, of_kind in OUTSIDE.items() for model in of_kind}
    sides = {
        kind: [s for s in whole.on_axis("compute") if theirs.get(s.last.model, kind_of(s.family)) == kind]
        for kind in OUTSIDE
    }
    for first, second in combinations(OUTSIDE, 2):
        if not (sides[first] and sides[second]):
            continue
        gaps = along_compute(whole, sides[first], sides[second], (first, second), HEADLINE)
        if gaps is None:
            yield too_few(NAME, first, second)
            continue
        last = gaps.gaps[-1].estimate
        decided = last.low > 0 or last.high < 0
        yield of_gaps(
            gaps,
            last,
            Verdict.YES if decided else Verdict.CANNOT_TELL,
            question=NAME,
            subject=(first, second),
            leader=(first if last.value > 0 else second) if decided else "",
        )


def sentence(f: Finding) -> str:
    who = f.leader or "neither"
    both = " and ".join(f.subject)
    return phrase(f"{both}: with a rate for each budget, {who} is ahead at the largest: ", wording.amount(f))


QUESTION = Question(
    name=NAME,
    label="Ahead at rates of their own?",
    text="Which kind is ahead if each network has the best learning rate for each budget?",
    yes="differ",
    no="do not",
    ask=ask,
    say=say,
    order=2,
    sentence=sentence,
)
"""The largest budget decides; the trend has the others."""
