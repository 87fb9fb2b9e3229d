"""The interface of a claim of the ViT paper: its words, and how findings confirm or contradict it.

A file in `bench/claims/` exports one claim as `CLAIM`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from bench.analysis.families import kind_of
from bench.analysis.finding import Finding, Verdict
from bench.analysis.findings import Stated


@dataclass(frozen=True, kw_only=True)
class PaperClaim:
    """A claim of the ViT paper.

    Attributes:
        order: position in a report; low numbers come first.
        text: the claim in one sentence.
        where: the section of the paper that makes it.
        judged: finding -> YES if it confirms the claim, NO if it contradicts it, CANNOT_TELL if it is undecided; None
            if it is about something else.
        stated: finding -> how the number that the paper states compares with the measured one; None if it states none.
        in_table: whether the paper's Table 6 has numbers about the claim.
    """

    order: int
    text: str
    where: str
    judged: Callable[[Finding], Verdict | None]
    stated: Callable[[Finding], Stated | None] = lambda finding: None
    in_table: bool = True


def is_about(finding: Finding, *kinds: str) -> bool:
    """Return whether a finding compares families of exactly these kinds ("ViT", "Hybrid", "ResNet")."""
    families = finding.subject[:2]  # a third entry of the subject may be the name of a comparison
    return sorted(map(str, map(kind_of, families))) == sorted(kinds)
