"""A claim of the ViT paper: its words, and which findings bear it out.

A file in `bench/claims/` exports one as `CLAIM`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from bench.analysis.families import kind_of
from bench.analysis.finding import Finding, Verdict
from bench.analysis.findings import Stated


@dataclass(frozen=True, kw_only=True)
class PaperClaim:
    """A claim of the paper.

    Attributes:
        order: place in a report, low first.
        text: the claim in one sentence.
        where: the section that makes it.
        judged: finding -> whether it bears the claim out; None where it is about something else.
        stated: finding -> how the number that the paper states lies to the measured one; None without such a number.
        in_table: the paper's Table 6 has numbers about it.
    """

    order: int
    text: str
    where: str
    judged: Callable[[Finding], Verdict | None]
    stated: Callable[[Finding], Stated | None] = lambda finding: None
    in_table: bool = True


def is_about(finding: Finding, *kinds: str) -> bool:
    """Whether a finding compares families of these kinds."""
    families = finding.subject[:2]  # with that of a comparison stands its name
    return sorted(map(str, map(kind_of, families))) == sorted(kinds)
