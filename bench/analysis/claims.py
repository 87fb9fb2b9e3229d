"""The paper's claims about scaling, held against what these records answer and against the paper's own Table 6.

What Table 6 says is asked of the questions that the suite `published` asks of it too: to one question there is one
answer. A study's own records, where seeds and budgets are many, are judged by laws.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from bench.analysis import published
from bench.analysis.claim import PaperClaim
from bench.analysis.evidence import Evidence
from bench.analysis.finding import Finding, Verdict
from bench.analysis.findings import Claim, Judgement
from bench.analysis.question import load
from bench.study import registry

OF_TABLE_6 = ("compute at equal error", "as claimed", "saturated")
"""The questions that are asked of the paper's own numbers, as far as they are plugged in."""


def every() -> dict[str, PaperClaim]:
    """Every claim by its name, in the order of a report."""
    made: dict[str, PaperClaim] = {name: registry.load("claim", name) for name in registry.names("claim")}
    return dict(sorted(made.items(), key=lambda named: named[1].order))


def claims(evidence: Evidence, findings: Sequence[Finding]) -> tuple[tuple[Claim, ...], tuple[Finding, ...]]:
    """Every claim judged by `findings` of `evidence` and by those of Table 6, and the latter."""
    own = judge(findings)
    if evidence.published:
        return tuple(Claim(claim=name, own=judgement, paper=None) for name, judgement in own.items()), ()
    paper, theirs = table_6()
    made = tuple(
        Claim(claim=name, own=own[name], paper=theirs[name] if claim.in_table else None)
        for name, claim in every().items()
    )
    return made, paper


@lru_cache(maxsize=1)
def table_6() -> tuple[tuple[Finding, ...], dict[str, Judgement]]:
    """Findings from the paper's own numbers, and the claims judged by them."""
    evidence = published.evidence()
    known = (name for name in OF_TABLE_6 if name.replace(" ", "-") in registry.names("question"))
    answers = (finding for name in known for finding in load(name).ask(evidence))
    judged = tuple(f for f in answers if any(_judged(claim, f) for claim in every().values()))
    return judged, judge(judged)


def judge(findings: Sequence[Finding]) -> dict[str, Judgement]:
    """Every claim by the finding that answers it."""
    made = dict.fromkeys(every(), Judgement(verdict=Verdict.CANNOT_TELL))
    for place, finding in enumerate(findings):
        for name, claim in every().items():
            verdict = _judged(claim, finding)
            if verdict is not None:
                made[name] = Judgement(verdict=verdict, finding=place, stated=claim.stated(finding))
    return made


def _judged(claim: PaperClaim, finding: Finding) -> Verdict | None:
    """Whether a finding bears a claim out; None if it is about something else, or compares networks of others."""
    if finding.question in OF_TABLE_6[:2] and not any(item.is_of_table_6 for item in finding.evidence):
        return None
    return claim.judged(finding)
