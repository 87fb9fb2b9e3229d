"""The ViT paper's claim that hybrids outperform ViT at small compute, and that their advantage shrinks for larger
models (section 4.4, Figure 5)."""

from __future__ import annotations

from bench.analysis.claim import PaperClaim
from bench.analysis.finding import Finding, Verdict

SHRINKS = "hybrid advantage shrinks"  # question about a study's own models
CLAIMED = "as claimed"  # question about published networks
HYBRIDS = "hybrids lead ViT when small, not when large"  # one of the subjects of CLAIMED's findings


def judged(finding: Finding) -> Verdict | None:
    claimed = finding.question == CLAIMED and finding.subject[0] == HYBRIDS
    return finding.verdict if finding.question == SHRINKS or claimed else None


CLAIM = PaperClaim(
    order=2,
    text="Hybrids outperform ViT at small compute; their lead shrinks for larger models.",
    where="section 4.4",
    judged=judged,
)
