"""The ViT paper's claim that ResNets are better with few pre-training images, and ViT with many (section 4.3, Figure
4)."""

from __future__ import annotations

from bench.analysis.claim import PaperClaim

CLAIM = PaperClaim(
    order=4,
    text="ResNets do better with fewer pre-training images; ViT overtakes them with more.",
    where="section 4.3",
    judged=lambda finding: finding.verdict if finding.question == "crossing over images" else None,
    in_table=False,  # Figure 4 has no table
)
