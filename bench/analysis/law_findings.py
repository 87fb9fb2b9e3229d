"""Functions that several questions about fitted laws use. They see to it that a law is not used where measured means
contradict it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import combinations
from typing import Any

from bench.analysis.comparisons import compared_series
from bench.analysis.evidence import Evidence
from bench.analysis.families import family_of_kind
from bench.analysis.finding import Axis, Counts, Finding, Item, LawDeviation, Reason, SeveralModels, Unit
from bench.analysis.scaling_laws import Law, laws
from bench.laws.bootstrap import LAW_LEVEL
from bench.laws.lack_of_fit import LackOfFit

X_QUANTITY: Mapping[Axis, Mapping[str, Any]] = {
    Axis.COMPUTE: {"quantity": "compute", "unit": Unit.FLOP},
    Axis.IMAGES: {"quantity": "distinct images", "unit": Unit.IMAGES},
}
"""For each axis, the fields of a finding whose estimate is an x on that axis."""
SAME_COMPUTE = 1.05  # ratio of compute up to which two runs count as having the same


def laws_of(evidence: Evidence, axis: Axis) -> dict[str, Law]:
    """Return family -> its fitted law over `axis`, for every family that has one; {} if the study does not compare
    families."""
    return laws(evidence, axis=axis) if compared_series(evidence) else {}


def pairs_of_laws(evidence: Evidence) -> list[tuple[Law, Law]]:
    """Return every pair of families that have a fitted law over compute, as a pair of these laws."""
    return list(combinations(laws_of(evidence, Axis.COMPUTE).values(), 2))


def of_kind(by_family: dict[str, Law], kind: str) -> Law | None:
    name = family_of_kind(by_family, kind)
    return by_family[name] if name else None


def law_finding(question: str, *families: Law, subject: Sequence[str] = ()) -> partial[Finding]:
    """Return a partial `Finding` about the laws of some families, to which the verdict and the answer have to be added.

    Args:
        question: name of the question.
        subject: names that the finding is about; (): those of the families.
    """
    names = tuple(subject or (law.family for law in families))
    return partial(
        Finding,
        question=question,
        subject=names,
        level=LAW_LEVEL,
        axis=families[0].axis,
        n=Counts(points=sum(len(law.points) for law in families), runs=sum(law.runs for law in families)),
    )


def why_not_smooth(*laws: Law) -> tuple[tuple[str, ...], tuple[Item, ...]]:
    """Return the reasons why crossings and exponents of these laws cannot be trusted (`Law.is_smooth`), and the
    evidence for them; ((), ()) if they can be trusted."""
    several = [SeveralModels(family=law.family, models=law.models) for law in laws if len(law.models) > 1]
    missed = [item for law in laws for item in deviation((law.family,), law.lack_of_fit)]
    reasons = (*([Reason.SEVERAL_MODELS] if several else []), *([Reason.LACK_OF_FIT] if missed else []))
    return reasons, (*several, *missed)


def deviation(families: Sequence[str], lack: LackOfFit | None) -> list[Item]:
    """Return a failed lack-of-fit test as evidence; [] if it did not fail.

    Args:
        families: names of the families that the law is of.
        lack: the test; None if it could not be made.
    """
    if lack is None or not lack.fails:
        return []
    return [LawDeviation(families=tuple(families), predicted=lack.predicted, observed=lack.error, p=lack.p)]
