"""The ViT paper's claim that ViT does not saturate within the range tried (section 4.4)."""

from __future__ import annotations

from bench.analysis.claim import PaperClaim, is_about
from bench.analysis.families import VIT
from bench.analysis.finding import Finding, Verdict

OPPOSITE = {Verdict.YES: Verdict.NO, Verdict.NO: Verdict.YES, Verdict.CANNOT_TELL: Verdict.CANNOT_TELL}


def judged(finding: Finding) -> Verdict | None:
    about = finding.question == "saturated" and is_about(finding, VIT)
    return OPPOSITE[finding.verdict] if about else None


CLAIM = PaperClaim(order=3, text="ViT does not saturate within the range tried.", where="section 4.4", judged=judged)
