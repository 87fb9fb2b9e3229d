"""Judges the ViT paper's claims about scaling by a study's records, and by the paper's own Table 6.

Table 6 is judged by questions that the suite `published` asks about the table too, so that one question has one answer.
A study's own records, which have several seeds and budgets, are judged by fitted laws.
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
"""Names of the questions that are asked about the paper's own numbers; those that are not installed are left out."""


def every() -> dict[str, PaperClaim]:
    """Return the claims of all files in `bench/claims/`, by name, in the order of a report."""
    made: dict[str, PaperClaim] = {name: registry.load("claim", name) for name in registry.names("claim")}
    return dict(sorted(made.items(), key=lambda named: named[1].order))


def claims(evidence: Evidence, findings: Sequence[Finding]) -> tuple[tuple[Claim, ...], tuple[Finding, ...]]:
    """Judge every claim by the `findings` of a study and by those of the paper's Table 6. Return the judged claims, and
    the findings of Table 6; () in place of the latter if the evidence is itself a publication."""
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
    """Return the findings from the paper's Table 6 that are about a claim, and the judgement of every claim by them."""
    evidence = published.evidence()
    known = (name for name in OF_TABLE_6 if name.replace(" ", "-") in registry.names("question"))
    answers = (finding for name in known for finding in load(name).ask(evidence))
    judged = tuple(f for f in answers if any(_judged(claim, f) for claim in every().values()))
    return judged, judge(judged)


def judge(findings: Sequence[Finding]) -> dict[str, Judgement]:
    """Return the judgement of every claim, by name, from the last finding that is about it; CANNOT_TELL if none is."""
    made = dict.fromkeys(every(), Judgement(verdict=Verdict.CANNOT_TELL))
    for place, finding in enumerate(findings):
        for name, claim in every().items():
            verdict = _judged(claim, finding)
            if verdict is not None:
                made[name] = Judgement(verdict=verdict, finding=place, stated=claim.stated(finding))
    return made


def _judged(claim: PaperClaim, finding: Finding) -> Verdict | None:
    """Return YES if a finding confirms a claim, NO if it contradicts it, CANNOT_TELL if it is undecided. None if it is
    about something else, or if its question asks about published networks and it compares none of Table 6."""
    if finding.question in OF_TABLE_6[:2] and not any(item.is_of_table_6 for item in finding.evidence):
        return None
    return claim.judged(finding)
