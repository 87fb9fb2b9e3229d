"""Finds whether one of two families overtakes the other within their common range, by measured points, without fitted
laws."""

from __future__ import annotations

from collections.abc import Mapping

from bench.analysis import wording
from bench.analysis.comparisons import compared_series, counts, families_of
from bench.analysis.evidence import Evidence, Series
from bench.analysis.families import RESNET, VIT, family_of_kind
from bench.analysis.finding import Axis, Finding, Reason, Verdict
from bench.analysis.frontiers import Gaps, of_one_data_set
from bench.analysis.law_findings import X_QUANTITY
from bench.analysis.scaling_laws import laws
from bench.analysis.wording import Number, Sentence
from bench.core.phrase import phrase

NO_CHANGE_OF_ORDER = "no change of order"  # reason of a finding: no change of rank exceeds the intervals

REASONS: Mapping[str, Sentence] = {NO_CHANGE_OF_ORDER: "No change of rank exceeds the intervals."}


def vit_and_resnet(evidence: Evidence) -> tuple[list[Series], str, str] | None:
    """Return (series by which families are compared, name of the ViT family, name of the ResNet family); None if one of
    the two families is not among them."""
    series = of_one_data_set(compared_series(evidence))
    names = families_of(series)
    vit, resnet = family_of_kind(names, VIT), family_of_kind(names, RESNET)
    return None if vit is None or resnet is None else (series, vit, resnet)


def by_law(evidence: Evidence, axis: Axis) -> bool:
    """Return whether both the ViT and the ResNet family have a fitted law over `axis`. If so, laws say where the two
    cross, and the finding by measured points is not a main one."""
    known = laws(evidence, axis=axis)
    return bool(family_of_kind(known, VIT) and family_of_kind(known, RESNET))


def finding_of(question: str, axis: Axis, gaps: Gaps, *, main: bool) -> Finding:
    """Return the finding on whether, and where, the order of two families changes between measured points.

    Args:
        question: name of the question.
        axis: whether the gaps are over compute or over images.
        gaps: the gap at each measured x.
        main: whether a report shows the finding among its main ones (`Finding.main`).
    """
    crossing, mean = gaps.crossing, gaps.mean
    last = (gaps.decided or gaps.gaps)[-1].verdict
    throughout = {gap.verdict for gap in gaps.gaps} == {last} != {Verdict.CANNOT_TELL}
    leader = {Verdict.YES: gaps.first, Verdict.NO: gaps.second}.get(last, "") if crossing or throughout else ""
    decided, why = last, []
    if crossing is None:
        decided, why = Verdict.CANNOT_TELL, [Reason.AHEAD_THROUGHOUT if throughout else NO_CHANGE_OF_ORDER]
    return Finding(
        question=question,
        subject=(gaps.first, gaps.second),
        verdict=decided,
        reasons=(*why, *([Reason.BEGINS_LATER] if gaps.begins else [])),
        evidence=(*((gaps.begins,) if gaps.begins else ()), *gaps.absent),
        leader=leader,
        main=main,
        axis=axis,
        trend=gaps.trend,
        **X_QUANTITY[axis],
        low=crossing[0] if crossing else None,
        high=crossing[1] if crossing else None,
        level=mean.level,
        p=gaps.p_of_crossing,
        n=counts(mean, steps=len(gaps.gaps)),
        excluded=mean.excluded,
    )


def say(f: Finding) -> list[str]:
    below = [f"{text}." for text in wording.below_pixels(f)]
    said = [f"{f.subject[0]} minus {f.subject[1]}: {wording.trend(f)}.", *below] if f.trend else []
    return [*said, *wording.absent(f)]


def sentence(f: Finding) -> str:
    late = wording.begins(f)
    return phrase(f"{f.leader} overtakes {wording.other(f)} ", number(f).text, f"{f'; {late}' if late else ''}")


def number(f: Finding) -> Number:
    """Return in words the budgets between which the order changes; if it does not change, the trend of the gap."""
    if f.low is None:
        return wording.number(f)
    text = f"between {wording.between(f, f.low, f.high, 'and')}"
    return Number(text=text, short=text)
