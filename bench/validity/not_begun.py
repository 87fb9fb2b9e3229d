"""Finds models that have not begun to learn at some of their budgets."""

from __future__ import annotations

from collections.abc import Iterator

from bench.analysis.check import Check, groups, names
from bench.analysis.evidence import Evidence
from bench.analysis.findings import ValidityCheck
from bench.core.formatting import count, flops_range, plural

NOT_BEGUN = "not begun"
"""A model has points whose network has not begun to learn (`bench.analysis.begun`). They are left out of comparisons,
laws and sentences, and hollow in figures. `names`: the model; `count`: number of these points, out of `limit`; `low`,
`high`: their least and largest compute, in FLOP; `groups`: the reasons."""


def find(evidence: Evidence) -> Iterator[ValidityCheck]:
    """Yield a result for every model that has not begun to learn at some of its points (budgets)."""
    for series in evidence.series:
        if without := [p for p in series.points if p.key in evidence.not_begun]:
            spent = sorted(p.train_flops for p in without)
            yield ValidityCheck(
                kind=NOT_BEGUN,
                names=(series.label,),
                count=len(without),
                limit=len(series.points),
                low=spent[0],
                high=spent[-1],
                groups=(("", tuple(sorted({str(evidence.not_begun[p.key]) for p in without}))),),
            )


def _not_begun(c: ValidityCheck) -> str:
    at = flops_range(c.low or 0.0, c.high or 0.0)
    return (
        f"{names(c)} has not begun to learn at {at} ({count(c.count)} of {plural(int(c.limit or 0), 'point')}: "
        f"{groups(c)}). There it is hollow in figures, and in no comparison and no law."
    )


CHECK = Check(
    order=18,
    find=find,
    words={
        NOT_BEGUN: _not_begun,
    },
)
