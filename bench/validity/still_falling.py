"""Models compared at equal compute over images whose training had hardly begun."""

from __future__ import annotations

from collections.abc import Iterator

from bench.analysis import gap_series
from bench.analysis.check import Check, Words, names
from bench.analysis.evidence import Evidence
from bench.analysis.findings import Level, ValidityCheck
from bench.core.formatting import flops

STILL_FALLING = "still falling"
"""At the budget low (FLOP) of models compared at equal compute over images, names: of them (of all, in a note) the
training loss still fell in the last doubling by up to high, as a share of the loss of guessing; limit: above which
training has only begun, a warning."""
MOST_FALL = 0.1
"""Training has only begun where its loss falls by a larger share of the loss of guessing per doubling."""


def find(evidence: Evidence) -> Iterator[ValidityCheck]:
    """Models compared at equal compute over images: whether more than the beginning of their training was over."""
    falling = gap_series.still_falling(evidence)
    for budget in sorted({f.flops for f in falling}):
        mine = [f for f in falling if f.flops == budget]
        begun = [f for f in mine if f.share > MOST_FALL]
        yield ValidityCheck(
            kind=STILL_FALLING,
            level=Level.WARNING if begun else Level.NOTE,
            low=budget,
            limit=MOST_FALL,
            names=tuple(f.model for f in begun or mine),
            high=max(f.share for f in mine),
        )


def _falling(c: ValidityCheck) -> Words:
    judged = "training had only begun" if c.level is Level.WARNING else "the untrained part was over"
    return Words(
        text=f"At {flops(c.low or 0)} {judged}",
        rule=f"rule: less than {c.limit:.0%} of the loss of guessing per doubling of training",
        rest=f": the training loss of {names(c)} still fell by up to {c.high:.0%} of it.",
    )


CHECK = Check(
    order=20,
    find=find,
    words={
        STILL_FALLING: _falling,
    },
)
