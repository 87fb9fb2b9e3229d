"""Finds where one of two families overtakes the other, by their fitted laws (error over compute or images), within the
range that both cover.

Intervals are of the x where the laws cross, not of the x where one more run of each family would be equally good. If a
law is not smooth (`Law.is_smooth`), the order of the measured points answers instead: it says between which budgets the
order changes, without a fit. Because tasks may disagree, the crossing on each task is given beside that of their mean.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial

from bench.analysis import order, wording
from bench.analysis.budgets import FamilyBudget
from bench.analysis.comparisons import compared_series, size_curves
from bench.analysis.evidence import HEADLINE, Evidence
from bench.analysis.finding import Axis, Finding, Item, Reason, Verdict
from bench.analysis.frontiers import Gaps, at_compute, at_images, of_one_data_set
from bench.analysis.law_findings import X_QUANTITY, law_finding, laws_of, of_kind, why_not_smooth
from bench.analysis.scaling_laws import Law, laws
from bench.analysis.wording import Number, Sentence
from bench.core.formatting import count, flops
from bench.core.measure import measure_text
from bench.core.phrase import phrase
from bench.laws.crossing import crossing

# Reasons of a finding (`Finding.reasons`).
CROSSING_UNSTABLE = "crossing unstable"
"""The laws may cross or not. If the finding has a `low`, the leader is certain up to that x; if it has a `high`, the
leader is certain from that x on."""
UNEQUAL_COMPUTE = "unequal compute"
"""The families were compared at equal images, not at equal compute; the evidence has a `FamilyBudget` of each."""


@dataclass(frozen=True, kw_only=True)
class TaskCrossing(Item):
    """Where the order of two families changes on one task.

    Attributes:
        task: name of the task's score.
        leader: the family that is ahead beyond the change or, if the order does not change, throughout; "" if the order
            is unknown.
        x: where the laws cross (FLOP or images); None if measured points were used, or if the order does not change.
        low, high: interval of x; if measured points were used, the budgets between which the order changes.
    """

    task: str
    leader: str
    x: float | None = None
    low: float | None = None
    high: float | None = None


def crossings(evidence: Evidence, name: str, axis: Axis, *, kinds: tuple[str, str]) -> Iterator[Finding]:
    """Yield one finding on where one family overtakes the other, if both have a law.

    Args:
        name: name of the question that the finding answers.
        axis: whether the crossing is over compute or over images.
        kinds: kinds of the two families, such as ("ViT", "ResNet").
    """
    known = laws_of(evidence, axis)
    first, second = (of_kind(known, kind) for kind in kinds)
    if first and second:
        made = _answer(evidence, name, first, second)
        tasks = evidence.parts(HEADLINE)
        if len(tasks) > 1 and made.verdict != Verdict.CANNOT_TELL:
            by_law = made.estimate is not None
            by_task = [_on_task(evidence, name, first, second, task, by_law=by_law) for task in tasks]
            made = replace(made, evidence=(*made.evidence, *by_task))
        yield made


def _answer(evidence: Evidence, name: str, first: Law, second: Law, measure: str = HEADLINE) -> Finding:
    """Return the finding of the question `name` by the two laws if both are smooth, otherwise by the order of the
    measured points."""
    why, items = why_not_smooth(first, second)
    if not why:
        return crossing_of(name, first, second)
    gaps = _measured(evidence, first, second, measure)
    remarks = (*why, *([UNEQUAL_COMPUTE] if first.axis == Axis.IMAGES else []))
    items = (*items, *([_budget(law) for law in (first, second)] if first.axis == Axis.IMAGES else []))
    if isinstance(gaps, Gaps):
        made = order.finding_of(name, first.axis, gaps, main=True)
        return replace(made, reasons=(*made.reasons, *remarks), evidence=(*made.evidence, *items))
    return law_finding(name, first, second)(verdict=Verdict.CANNOT_TELL, reasons=remarks, evidence=items)


def _measured(evidence: Evidence, first: Law, second: Law, measure: str) -> Gaps | Reason | None:
    """Compare the measured points of two families along the axis of their laws, on the score `measure`. Return a
    `Reason` or None if they cannot be compared."""
    if first.axis == Axis.IMAGES:
        return at_images(evidence, size_curves(evidence), first.family, second.family, measure)
    series = of_one_data_set(compared_series(evidence))
    return at_compute(evidence, series, first.family, second.family, measure)


def _on_task(evidence: Evidence, name: str, first: Law, second: Law, task: str, *, by_law: bool) -> TaskCrossing:
    """Return where the order of two families changes on one task.

    Args:
        name: name of the question.
        first, second: the families' laws of the mean over tasks.
        task: name of the task's score.
        by_law: whether the mean was judged by laws. If so, and if both families have a law on the task, the task is
            judged by laws; otherwise by measured points.
    """
    of_task = laws(evidence, axis=first.axis, measure=task) if by_law else {}
    sides = [of_task.get(law.family) for law in (first, second)]
    if sides[0] and sides[1]:
        made = _answer(evidence, name, sides[0], sides[1], task)
    else:
        gaps = _measured(evidence, first, second, task)
        if not isinstance(gaps, Gaps):
            return TaskCrossing(task=task, leader="")
        made = order.finding_of(name, first.axis, gaps, main=True)
    crosses = made.verdict != Verdict.CANNOT_TELL
    throughout = Reason.AHEAD_THROUGHOUT in made.reasons
    return TaskCrossing(
        task=task,
        leader=made.leader if crosses or throughout else "",
        x=made.estimate if crosses else None,
        low=made.low if crosses else None,
        high=made.high if crosses else None,
    )


def crossing_of(question: str, first: Law, second: Law) -> Finding:
    """Return the finding of a question on where the first family overtakes the second, by their laws."""
    crossed = crossing(first.averaged, second.averaged, names=(first.family, second.family))
    remarks: list[str] = []
    budgets: list[Item] = []
    if first.axis == Axis.IMAGES:
        budgets, remarks = [_budget(law) for law in (first, second)], [UNEQUAL_COMPUTE, *remarks]
    finding = partial(
        law_finding(question, first, second),
        leader=crossed.leader or "",
        evidence=tuple(budgets),
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
            p=crossed.p,
        )
    if crossed.throughout:
        return finding(
            verdict=Verdict.CANNOT_TELL, reasons=(Reason.AHEAD_THROUGHOUT, *remarks), agreement=crossed.share
        )
    why = CROSSING_UNSTABLE if crossed.common_range else Reason.NO_COMMON_RANGE
    return finding(verdict=Verdict.CANNOT_TELL, reasons=(why, *remarks), low=crossed.low, high=crossed.high)


def _budget(law: Law) -> FamilyBudget:
    """Return the least and the most compute, and images seen, of the runs that a law over images is fitted to."""
    spent = sorted((point.train_flops, point.images_seen) for point in law.points)
    (least, few), (most, many) = spent[0], spent[-1]
    return FamilyBudget(family=law.family, flops=(least, most), images_seen=(few, many))


def say(f: Finding) -> list[str]:
    if f.estimate is not None:
        above = [f"Above this value, {f.leader} is ahead."] if f.leader else []
    else:
        above = order.say(f)
    tasks = by_task(f)
    return [*above, *([f"By task: {tasks}."] if tasks else [])]


def by_task(f: Finding) -> str:
    """Return in words where the order changes on every task behind the mean ("mnist ViT ahead beyond 1.07 TFLOPs;
    scripts none, ViT ahead throughout")."""
    said = []
    for item in wording.every(f, TaskCrossing):
        ends = [end for end in (item.low, item.high) if end is not None]
        if item.x is not None:
            where = f"{item.leader} ahead beyond {wording.place(f, item.x)}"
        elif len(ends) == 2:
            where = f"{item.leader} overtakes between {wording.between(f, ends[0], ends[1], 'and')}"
        else:
            where = f"none, {item.leader} ahead throughout" if item.leader else "none"
        said.append(f"{measure_text(item.task)} {where}")
    return "; ".join(said)


def number(f: Finding) -> Number:
    """Return the x of the crossing with its interval; if measured points were used, the budgets between which the order
    changes."""
    return wording.number(f) if f.estimate is not None else order.number(f)


def sentence(f: Finding) -> str:
    tasks = f" (by task: {by_task(f)})" if by_task(f) else ""
    if f.estimate is None:
        return phrase(order.sentence(f), f", where the measured order changes{tasks}")
    return phrase(f"{f.leader} is ahead of {wording.other(f)} beyond ", wording.number(f).text, f"{tasks}")


def _open(f: Finding) -> str:
    """Return a sentence that says where the laws may cross, or that this is unknown."""
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


REASONS: Mapping[str, Sentence] = {CROSSING_UNSTABLE: _open, UNEQUAL_COMPUTE: _unequal, **order.REASONS}
