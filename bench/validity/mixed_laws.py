"""Finds families whose points (each a model at a budget) do not belong in one scaling law."""

from __future__ import annotations

from collections.abc import Iterator

from bench.analysis.check import Check, groups, names
from bench.analysis.evidence import Evidence, family_rank
from bench.analysis.findings import ValidityCheck
from bench.analysis.scaling_laws import (
    LAW_FIT_FAILED,
    LAW_NOT_COOLED_DOWN,
    LAW_SEVERAL_DATA_SETS,
    LAW_TOO_FEW_POINTS,
    LAW_UNITS,
    mixed,
)
from bench.core.formatting import count

REFUSALS = {
    LAW_TOO_FEW_POINTS: "{count} points on or near the frontier, at least {limit:g} are needed",
    LAW_FIT_FAILED: "the fit failed",
    LAW_NOT_COOLED_DOWN: "{count} points were not cooled down, the others were",
    LAW_SEVERAL_DATA_SETS: "points were pre-trained on different data ({groups})",
    LAW_UNITS: "compute is counted in several units ({groups})",
}
UNCONTROLLED = "uncontrolled"
"""The numbers come from many authors, so no law is fitted, and only controlled pairs give main answers."""


def find(evidence: Evidence) -> Iterator[ValidityCheck]:
    """Yield a result for every family whose points do not belong in one law; for numbers from many authors, to which no
    law is fitted, a single result."""
    if not evidence.controlled:
        yield ValidityCheck(kind=UNCONTROLLED)
        return
    for family in sorted({s.family for s in evidence.on_axis("compute")}, key=family_rank):
        points = [p for s in evidence.on_axis("compute") if s.family == family for p in s.points]
        if check := mixed(evidence, family, points):
            yield check


def refusal(c: ValidityCheck, *, against: str = "") -> str:
    """Return a sentence that says why a family has no law.

    Args:
        c: the reason, from `bench.analysis.scaling_laws`.
        against: what the law would be over, if the sentence is to mention it; "": it is not.
    """
    why = REFUSALS[c.kind].format(count=count(c.count), limit=c.limit, groups=groups(c))
    return f"No law{f' against {against}' if against else ''} for {names(c)}: {why}."


CHECK = Check(
    order=11,
    find=find,
    words={
        UNCONTROLLED: "Checkpoints are of many authors and years: recipes and test sizes differ with the family. Main "
        "answers are of controlled pairs alone.",
        **dict.fromkeys(REFUSALS, refusal),
    },
)
