"""Finds families whose smallest or largest network is the best at some budget: a network of another size may be better
there."""

from __future__ import annotations

from collections.abc import Iterator

from bench.analysis.budgets import budgets
from bench.analysis.check import Check
from bench.analysis.evidence import HEADLINE, Evidence
from bench.analysis.findings import ValidityCheck
from bench.analysis.frontiers import of_one_data_set
from bench.core.by_key import by_key
from bench.core.formatting import flops

SMALLEST = "best is the smallest"
LARGEST = "best is the largest"
"""For both kinds, `names`: family and network; `low`, `high`: least and largest of the budgets, in FLOP; `count`:
number of budgets."""


def find(evidence: Evidence) -> Iterator[ValidityCheck]:
    """Yield a result for every family whose smallest network is the best at some budgets, and another if its largest
    one is. Only budgets at which several of its networks were trained count.

    A network's size is its training FLOPs per image. At a given compute, a network that is too large sees too few
    images, and one that is too small cannot learn more.
    """
    series = of_one_data_set(evidence.on_axis("compute")) if not evidence.published else []
    for family in dict.fromkeys(s.family for s in series):
        own = [s for s in series if s.family == family]
        size = {s.label: s.last.train_flops / s.last.images_seen for s in own if s.last.images_seen}
        if len(size) < 2 or max(size.values()) < 1.5 * min(size.values()):
            continue
        read = sorted(
            (p.train_flops, estimate.value, s.label)
            for s in own
            if s.label in size
            for p in s.points
            if p.train_flops > 0 and (estimate := evidence.estimate(p, HEADLINE)) is not None
        )
        ends = {SMALLEST: min(size, key=size.__getitem__), LARGEST: max(size, key=size.__getitem__)}
        at: dict[str, list[float]] = {SMALLEST: [], LARGEST: []}
        at_budgets = budgets([flop for flop, _, _ in read]).tolist()
        for of_budget in by_key(zip(at_budgets, read, strict=True)).values():
            best = max(of_budget, key=lambda r: r[1])
            for kind, label in ends.items():
                if len(of_budget) > 1 and best[2] == label:
                    at[kind].append(best[0])
        for kind, spent in at.items():
            if spent:
                yield ValidityCheck(
                    kind=kind, names=(family, ends[kind]), low=min(spent), high=max(spent), count=len(spent)
                )


def _say(c: ValidityCheck, end: str, other: str) -> str:
    family, network = c.names
    assert c.low and c.high
    where = f"At {flops(c.low)}" if c.count == 1 else f"From {flops(c.low)} to {flops(c.high)}"
    return f"{where} the best {family} is the study's {end}, {network}: a {other} one may be better there."


CHECK = Check(
    order=4,
    find=find,
    words={
        SMALLEST: lambda c: _say(c, "smallest", "smaller"),
        LARGEST: lambda c: _say(c, "largest", "larger"),
    },
)
