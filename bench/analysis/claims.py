"""The paper's claims about scaling, held against what these records answer and against the paper's own Table 6.

What Table 6 says is asked of the questions that the suite `published` asks of it too: to one question there is one
answer. A study's own records, where seeds and budgets are many, are judged by laws.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from bench.analysis import published
from bench.analysis.evidence import Evidence
from bench.analysis.families import RESNET, VIT, kind_of
from bench.analysis.finding import Finding, Verdict
from bench.analysis.findings import Claim, ClaimKind, Judgement, Stated
from bench.analysis.matched import Comparison
from bench.analysis.question import load

MATCH, SHRINKS, IMAGES, SATURATED = "compute to match", "hybrid advantage shrinks", "crossing over images", "saturated"
"""Those whose findings bear on the claims, in a study."""
EQUAL, CLAIMED = "compute at equal error", "as claimed"
"""The same of published networks, by families at equal error."""
HYBRIDS = "hybrids lead ViT when small, not when large"  # one of the subjects of CLAIMED
OF_TABLE_6 = (EQUAL, CLAIMED, SATURATED)
STATED = (2.0, 4.0)  # times less compute
OPPOSITE = {Verdict.YES: Verdict.NO, Verdict.NO: Verdict.YES, Verdict.CANNOT_TELL: Verdict.CANNOT_TELL}


def claims(evidence: Evidence, findings: Sequence[Finding]) -> tuple[tuple[Claim, ...], tuple[Finding, ...]]:
    """Every claim judged by `findings` of `evidence` and by those of Table 6, and the latter."""
    own = judge(findings)
    if evidence.published:
        return tuple(Claim(claim=kind, own=own[kind], paper=None) for kind in ClaimKind), ()
    paper, theirs = table_6()
    made = tuple(
        Claim(claim=kind, own=own[kind], paper=None if kind == ClaimKind.DATA else theirs[kind]) for kind in ClaimKind
    )
    return made, paper


@lru_cache(maxsize=1)
def table_6() -> tuple[tuple[Finding, ...], dict[ClaimKind, Judgement]]:
    """Findings from the paper's own numbers, and the claims judged by them."""
    evidence = published.evidence()
    answers = (finding for name in OF_TABLE_6 for finding in load(name).ask(evidence))
    judged = tuple(f for f in answers if any(_judged(kind, f) for kind in ClaimKind))
    return judged, judge(judged)


def judge(findings: Sequence[Finding]) -> dict[ClaimKind, Judgement]:
    """Every claim by the finding that answers it."""
    made = dict.fromkeys(ClaimKind, Judgement(verdict=Verdict.CANNOT_TELL))
    for place, finding in enumerate(findings):
        for kind in ClaimKind:
            verdict = _judged(kind, finding)
            if verdict is not None:
                stated = _stated(finding) if kind == ClaimKind.CHEAPER else None
                made[kind] = Judgement(verdict=verdict, finding=place, stated=stated)
    return made


def _judged(kind: ClaimKind, finding: Finding) -> Verdict | None:
    """Whether a finding bears a claim out; None if it is about something else."""
    question = finding.question
    compared = [item for item in finding.evidence if isinstance(item, Comparison)]
    if question in (EQUAL, CLAIMED) and not any(comparison.is_of_table_6 for comparison in compared):
        return None
    if kind == ClaimKind.SHRINKING:
        is_asked = question == SHRINKS or (question == CLAIMED and finding.subject[0] == HYBRIDS)
        return finding.verdict if is_asked else None
    if kind == ClaimKind.DATA:
        return finding.verdict if question == IMAGES else None
    if kind == ClaimKind.UNSATURATED:
        about = question == SATURATED and _are(finding, VIT)
        return OPPOSITE[finding.verdict] if about else None
    if question not in (MATCH, EQUAL) or not _are(finding, VIT, RESNET):
        return None
    stated = _stated(finding)
    if stated is None or finding.verdict != Verdict.YES:
        return Verdict.CANNOT_TELL
    vit_needs_less = kind_of(finding.leader) == VIT
    return Verdict.YES if vit_needs_less and stated != Stated.OUTSIDE else Verdict.NO


def _stated(finding: Finding) -> Stated | None:
    """How the stated factor lies to the finding's."""
    if finding.verdict != Verdict.YES or finding.estimate is None or finding.low is None or finding.high is None:
        return None
    if STATED[0] <= finding.estimate <= STATED[1]:
        return Stated.CONTAINS
    return Stated.OVERLAPS if finding.low <= STATED[1] and finding.high >= STATED[0] else Stated.OUTSIDE


def _are(finding: Finding, *kinds: str) -> bool:
    families = finding.subject[:2]  # with that of a comparison stands its name
    return sorted(map(str, map(kind_of, families))) == sorted(kinds)
