"""The ViT paper's claim that ViT needs less compute than ResNet for the same performance (section 4.4, Figure 5)."""

from __future__ import annotations

from bench.analysis.claim import PaperClaim, is_about
from bench.analysis.families import RESNET, VIT, kind_of
from bench.analysis.finding import Finding, Verdict
from bench.analysis.findings import Stated

MATCH = "compute to match"  # question about a study's own models
CLAIMED = "as claimed"  # question about published networks
CHEAPER = "ViT takes 2 to 4 times less compute"  # one of the subjects of CLAIMED's findings
STATED = (2.0, 4.0)  # range of the factor that the paper states: times less compute


def stated(finding: Finding) -> Stated | None:
    """Return how the factor that the ViT paper states (2 to 4 times less compute) compares with a finding's estimate
    and interval; None if the finding has none, or its verdict is not YES."""
    if finding.verdict != Verdict.YES or finding.estimate is None or finding.low is None or finding.high is None:
        return None
    if STATED[0] <= finding.estimate <= STATED[1]:
        return Stated.CONTAINS
    return Stated.OVERLAPS if finding.low <= STATED[1] and finding.high >= STATED[0] else Stated.OUTSIDE


def judged(finding: Finding) -> Verdict | None:
    if finding.question == CLAIMED and finding.subject[0] == CHEAPER:
        return finding.verdict
    if finding.question != MATCH or not is_about(finding, VIT, RESNET):
        return None
    lies = stated(finding)
    if lies is None or finding.verdict != Verdict.YES:
        return Verdict.CANNOT_TELL
    vit_needs_less = kind_of(finding.leader) == VIT
    return Verdict.YES if vit_needs_less and lies != Stated.OUTSIDE else Verdict.NO


CLAIM = PaperClaim(
    order=1,
    text="ViT uses about 2 to 4 times less compute than ResNet for the same performance, on average over five sets.",
    where="section 4.4",
    judged=judged,
    stated=stated,
)
