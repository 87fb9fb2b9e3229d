"""Finds, among the models that are compared over images at equal compute, those whose training had only begun: their
training loss still fell fast."""

from __future__ import annotations

from collections.abc import Iterator

from bench.analysis import gap_series
from bench.analysis.check import Check, Words, names
from bench.analysis.evidence import Evidence
from bench.analysis.findings import Level, ValidityCheck
from bench.core.formatting import flops

STILL_FALLING = "still falling"
"""Models are compared over images at one budget, `low` (FLOP). Their training loss still fell in the last doubling of
images seen, by at most a fraction `high` of the loss of guessing. WARNING: for the models in `names` it fell by more
than `limit`; their training had only begun. NOTE: it did so for none; `names` are all models."""
MOST_FALL = 0.1
"""Training has only begun if its loss falls, per doubling of images seen, by more than this fraction of the loss of
guessing."""


def find(evidence: Evidence) -> Iterator[ValidityCheck]:
    """Yield a result for each compute budget at which models are compared over images: a WARNING if the loss of some of
    them still fell fast, otherwise a NOTE."""
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
