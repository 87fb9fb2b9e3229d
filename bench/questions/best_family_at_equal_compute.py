"""Which family's best model at a budget is ahead?

Findings:
    subject: two families. Each is represented by its best model at each budget of the common range.
    estimate: accuracy gap, first - second, averaged over the range; None if the gap depends on compute
        (`Reason.CHANGES`), so that only the trend is meaningful.
    trend: the gap at every budget.
    leader: the family that is ahead.
    evidence: `BeginsLater`, if a family has not begun to learn at the smallest budgets; `BestAbsent`, if a family's
        best model was not trained to the largest; `OtherRates`, if other learning rates were trained.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations

from bench.analysis import rate_choice, wording
from bench.analysis.comparisons import compared_series, counts, families_of, undecided, unreplicated_noise, verdict
from bench.analysis.evidence import HEADLINE, Evidence
from bench.analysis.finding import Axis, Finding, Item, Reason, TrendPoint, Unit, Verdict
from bench.analysis.frontiers import of_one_data_set
from bench.analysis.question import FACTS, Question, Tone
from bench.analysis.rate_choice import UnderRates
from bench.core.formatting import join, signed
from bench.core.phrase import phrase

NAME = "best family at equal compute"
SELECTION_BIAS = "selection bias"  # reason of a finding: scores are not corrected for picking the best models


def ask(evidence: Evidence) -> Iterator[Finding]:
    """Yield one finding for every pair of families, on the pre-training set that most models use."""
    series = of_one_data_set(compared_series(evidence))
    for first, second in combinations(families_of(series), 2):
        found = rate_choice.at_compute(evidence, series, first, second, HEADLINE)
        if isinstance(found, Reason):
            yield Finding(
                question=NAME,
                subject=(first, second),
                axis=Axis.COMPUTE,
                verdict=Verdict.CANNOT_TELL,
                reasons=(found,),
            )
        else:
            yield _best_finding(found)


def _best_finding(found: UnderRates) -> Finding:
    gaps = found.gaps
    mean, changes = gaps.mean, gaps.changes
    decided = verdict(mean, gaps.accuracy)
    disagree = len({gap.verdict for gap in gaps.decided}) > 1
    why = (Reason.ORDER_CHANGES,) if disagree else undecided(mean, gaps.accuracy)
    known: list[str] = [Reason.CHANGES] if changes else []
    known += [] if gaps.corrected else [SELECTION_BIAS]
    known += [Reason.BEGINS_LATER] if gaps.begins else []
    known += [Reason.WITHIN_BUDGETS] if gaps.carried else []
    is_decided = decided != Verdict.CANNOT_TELL and not disagree
    return Finding(
        question=NAME,
        subject=(gaps.first, gaps.second),
        axis=Axis.COMPUTE,
        verdict=Verdict.YES if is_decided else Verdict.CANNOT_TELL,
        reasons=(*why, *known),
        trend=gaps.trend,
        leader=(gaps.first if mean.value > 0 else gaps.second) if is_decided else "",
        quantity="accuracy difference",
        unit=Unit.SHARE,
        level=mean.level,
        p=gaps.p,
        estimate=None if changes else mean.value,
        low=None if changes else mean.low,
        high=None if changes else mean.high,
        n=counts(mean, steps=len(gaps.gaps)),
        excluded=mean.excluded,
        margin=unreplicated_noise(gaps.accuracy) if Reason.UNREPLICATED in why else None,
        evidence=(*((gaps.begins,) if gaps.begins else ()), *gaps.absent, *_choices(found)),
    )


@dataclass(frozen=True, kw_only=True)
class OtherRates(Item):
    """The range of the mean accuracy gap of two families if other learning rates had been chosen for their models.

    Attributes:
        choices: number of such choices that were compared.
        least, greatest: the smallest and the largest mean gap over them.
    """

    choices: int
    least: float
    greatest: float


def _choices(found: UnderRates) -> tuple[Item, ...]:
    values = [gaps.mean.value for gaps in found.others]
    return (OtherRates(choices=len(values), least=min(values), greatest=max(values)),) if values else ()


def say(f: Finding) -> list[str]:
    if not f.trend:
        return []
    decided = sum(p.verdict is not Verdict.CANNOT_TELL for p in f.trend)
    ends = "" if f.estimate is None else f", {wording.trend(f)}"
    said = [f"{f.subject[0]} minus {f.subject[1]}{ends}; decided at {decided} of {len(f.trend)} budgets."]
    if (other := wording.first(f, OtherRates)) is not None:
        said.append(
            f"With other learning rates that could have been chosen, {signed(other.least)} to {signed(other.greatest)} "
            "points along the range; the interval holds these too."
        )
    return [*said, *(f"{text}." for text in wording.below_pixels(f)), *wording.absent(f)]


def _said(f: Finding) -> tuple[tuple[TrendPoint, ...], str]:
    """Return the part of a finding's trend that its sentence is about, and words about the rest.

    A lead over networks that are worse than raw pixels means little. Therefore the part begins with the first budget at
    which both families are better than raw pixels; if there is none, it is the whole trend.
    """
    late = wording.begins(f)
    start = next((number for number, p in enumerate(f.trend) if not p.below), None)
    names = list(dict.fromkeys(name for p in f.trend[:start] for name in p.below))
    words = f"{join(names)} {'are' if len(names) > 1 else 'is'} below the pixel baseline" if names else ""
    if start:
        words = f"up to {wording.place(f, f.trend[start - 1].x)} {words}"
    return f.trend[start or 0 :], "".join(f"; {text}" for text in (words, late) if text)


def sentence(f: Finding) -> str:
    """Return one sentence that says which family leads and by how much; if that depends on compute, it says so for both
    ends of the range."""
    part, more = _said(f)
    first, last = part[0], part[-1]
    equal = "within equal budgets" if Reason.WITHIN_BUDGETS in f.reasons else "at equal compute"
    if f.estimate is not None:
        span = wording.between(f, f.trend[0].x, last.x, "to")
        return phrase(f"{f.leader} leads {wording.other(f)} by ", wording.amount(f), f" {equal}, {span}{more}")
    if len(part) == 1:
        return phrase(_at_one(f, first), f"{more}")
    return phrase(_at_both_ends(f, first, last), f"{more}")


def _at_one(f: Finding, p: TrendPoint) -> str:
    ahead, behind = f.subject if p.estimate >= 0 else f.subject[::-1]
    undecided = ", undecided" if p.verdict == Verdict.CANNOT_TELL else ""
    return phrase(
        f"{ahead} leads {behind} by ",
        wording.size(p.estimate, p.low, p.high),
        f" at {wording.place(f, p.x)}{undecided}",
    )


def _at_both_ends(f: Finding, first: TrendPoint, last: TrendPoint) -> str:
    if first.verdict == Verdict.CANNOT_TELL != last.verdict:
        return phrase(_at_one(f, last), f"; at {wording.place(f, first.x)} it is undecided")
    ahead, behind = f.subject if first.estimate >= 0 else f.subject[::-1]
    begins, ends = (wording.size(p.estimate, p.low, p.high) for p in (first, last))
    leads = phrase(f"{ahead} leads {behind} by ", begins, f" at {wording.place(f, first.x)}")
    end = wording.place(f, last.x)
    if last.verdict == Verdict.CANNOT_TELL:
        beyond = last.low is not None and last.high is not None and last.low * last.high > 0
        why = phrase(", for ", ends, " may be chance between single trainings") if beyond else phrase(": ", ends)
        return phrase(leads, f"; at {end} it is undecided", why)
    then = "by" if (first.estimate >= 0) == (last.estimate >= 0) else "trails by"
    return phrase(leads, f" and {then} ", ends, f" at {end}")


def along(f: Finding) -> tuple[str, Tone] | None:
    """Return the verdict on a gap that depends on compute in words, such as "ViT ahead", "ViT, then even" or "order
    changes", and its tone. None if the gap does not depend on compute, if no family is ahead anywhere, or if the lead
    of one family comes and goes; the usual words then apply."""
    if f.estimate is not None:
        return None
    names = {Verdict.YES: f.subject[0], Verdict.NO: f.subject[1], Verdict.CANNOT_TELL: "even"}
    verdicts = [p.verdict for p in f.trend]
    parts = [names[v] for v, before in zip(verdicts, [None, *verdicts], strict=False) if v != before]
    if len(parts) > 2:
        return ("order changes", "fact") if Reason.ORDER_CHANGES in f.reasons else None
    if parts in ([], ["even"]):
        return None
    return f"{parts[0]} ahead" if len(parts) == 1 else ", then ".join(parts), "fact"


QUESTION = Question(
    name=NAME,
    label="Ahead at equal compute?",
    text="Which family's best model at a budget is ahead?",
    yes="{} ahead",
    no="{} ahead",
    tones=FACTS,
    ask=ask,
    say=say,
    reasons={
        SELECTION_BIAS: "Not corrected for selection of the best model, since no training was repeated.",
    },
    order=90,
    items=(OtherRates,),
    about_two=True,
    counts_together=True,
    states_basis=True,
    verdict=along,
    sentence=sentence,
    shown_in=("frontier", "compute"),
)
