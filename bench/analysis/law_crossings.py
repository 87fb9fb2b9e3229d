"""Where one of two families begins to be ahead of the other, by their fitted laws, inside the common range.

The question is about the laws: intervals are of the place where they cross, not of where one more run of each would be
as good as the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

from bench.analysis import wording
from bench.analysis.budgets import FamilyBudget
from bench.analysis.evidence import Evidence
from bench.analysis.finding import Axis, Finding, Item, Reason, Verdict
from bench.analysis.law_findings import X_QUANTITY, deviation, law_finding, laws_of, of_kind
from bench.analysis.scaling_laws import Law
from bench.analysis.wording import Sentence
from bench.core.formatting import count, flops
from bench.stats.crossing import crossing

# Reasons.
CROSSING_UNSTABLE = "crossing unstable"
"""Laws may cross or not. With low or high, the leader is known up to there, or from there on."""
UNEQUAL_COMPUTE = "unequal compute"  # compared at equal images: evidence has the `FamilyBudget` of each family


def crossings(evidence: Evidence, name: str, axis: Axis, *, kinds: tuple[str, str]) -> Iterator[Finding]:
    """The finding of the question `name` about two kinds of families, where both have a law."""
    known = laws_of(evidence, axis)
    first, second = (of_kind(known, kind) for kind in kinds)
    if first and second:
        yield crossing_of(name, first, second)


def crossing_of(question: str, first: Law, second: Law) -> Finding:
    """Where the first begins to be ahead of the second."""
    crossed = crossing(first.averaged, second.averaged, names=(first.family, second.family))
    missed = [item for law in (first, second) for item in deviation((law.family,), law.lack_of_fit)]
    remarks: list[str] = [Reason.LACK_OF_FIT] if missed else []
    budgets: list[Item] = []
    if first.axis == Axis.IMAGES:
        budgets, remarks = [_budget(law) for law in (first, second)], [UNEQUAL_COMPUTE, *remarks]
    finding = partial(
        law_finding(question, first, second),
        leader=crossed.leader or "",
        evidence=(*budgets, *missed),
        **X_QUANTITY[first.axis],
    )
    if crossed.x is not None:
        return finding(
            verdict=Verdict.YES if crossed.overtakes == first.family else Verdict.NO,
            reasons=tuple(remarks),
            estimate=crossed.x,
            low=crossed.low,
            high=crossed.high,
            agreement=crossed.share,
        )
    if crossed.throughout:
        return finding(
            verdict=Verdict.CANNOT_TELL, reasons=(Reason.AHEAD_THROUGHOUT, *remarks), agreement=crossed.share
        )
    why = CROSSING_UNSTABLE if crossed.common_range else Reason.NO_COMMON_RANGE
    return finding(verdict=Verdict.CANNOT_TELL, reasons=(why, *remarks), low=crossed.low, high=crossed.high)


def _budget(law: Law) -> FamilyBudget:
    """The compute and images behind the points of a curve over images."""
    spent = sorted((point.train_flops, point.images_seen) for point in law.points)
    (least, few), (most, many) = spent[0], spent[-1]
    return FamilyBudget(family=law.family, flops=(least, most), images_seen=(few, many))


def say(f: Finding) -> list[str]:
    return [f"Above this value, {f.leader} is ahead."] if f.estimate is not None and f.leader else []


def sentence(f: Finding) -> str:
    return f"{f.leader} is ahead of {wording.other(f)} beyond {wording.number(f).text}"


def _open(f: Finding) -> str:
    """Where laws may cross, or that the points do not tell."""
    if f.low is not None:
        return f"{f.leader} is ahead up to {wording.place(f, f.low)}; if the laws cross, they do so above."
    if f.high is not None:
        return f"{f.leader} is ahead from {wording.place(f, f.high)} on; if the laws cross, they do so below."
    return "Whether the laws cross depends on their form and on noise."


def _unequal(f: Finding) -> str:
    spent = []
    for b in wording.every(f, FamilyBudget):
        ends = dict.fromkeys(zip(b.flops, b.images_seen, strict=True))
        texts = [f"{flops(work)} over {count(seen)} images seen" for work, seen in ends]
        spent.append(f"{b.family} {' to '.join(texts)}")
    return f"Not at equal compute: {'; '.join(spent)}."


REASONS: Mapping[str, Sentence] = {CROSSING_UNSTABLE: _open, UNEQUAL_COMPUTE: _unequal}
