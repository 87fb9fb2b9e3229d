"""Question: do published networks bear out what the ViT paper claims about architectures?

Findings:
    subject: the claim (`Claimed`), and the networks on which it is tested.
    estimate: the number that the claim is about: a ratio of compute, a quotient of two such ratios, or a difference of
        two gains.
    main: whether the comparison is controlled, i.e. nothing but the networks differs.
    evidence: the `Comparison` and its `ByMetric`, or both `Gain`s.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from enum import StrEnum

from bench.analysis import wording
from bench.analysis.evidence import Evidence
from bench.analysis.finding import Counts, Finding, Reason, Unit, Verdict
from bench.analysis.question import Question
from bench.claims.cheaper import CHEAPER, STATED
from bench.claims.shrinking import HYBRIDS
from bench.published.matched import (
    LEVEL,
    MEAN,
    TEST_IMAGES,
    ByMetric,
    Comparison,
    Gain,
    Ratio,
    by_metric,
    compared,
    gains,
    matched,
)
from bench.published.public_evidence import is_public
from bench.published.wording import CHANCE, TOP1, difference, in_other_metrics

NAME = "as claimed"
CONVNETS = ("ResNet", "ConvNeXt")
BESIDE = "ConvNeXt-B"
OVERLAP = "{:g} to {:g}".format(*STATED)


class Claimed(StrEnum):
    """A claim of the ViT paper that can be tested on published networks."""

    CHEAPER = CHEAPER  # section 4.4
    HYBRIDS = HYBRIDS  # section 4.4
    DATA = "ViT gains more from images than a ConvNet"  # section 4.3


def ask(evidence: Evidence) -> Iterator[Finding]:
    """Yield a finding for every test of every claim: one per suitable comparison of families, and per ViT with a
    gain."""
    for asked in compared(evidence):
        *networks, mean = matched(asked)
        average = matched(asked, MEAN)[-1] if asked.is_of_table_6 else mean
        known = [ratio for ratio in networks if ratio.ratio is not None]
        if asked.first.startswith("ViT") and asked.second.startswith(CONVNETS):
            yield _cheaper(asked, average, turned=1)
        elif asked.first.startswith(CONVNETS) and asked.second.startswith("ViT"):
            yield _cheaper(asked, average, turned=-1)
        elif asked.first == "Hybrid" and len(known) > 1:
            yield _shrinking(asked, known[0], known[-1])
    by_network = {gain.network: gain for gain in gains()}
    for gain in gains() if is_public(evidence) else ():
        if gain.family == "ViT" and "B/16" in gain.network:
            other = by_network[BESIDE]
            half = math.hypot(gain.half, other.half)
            where = Claimed.DATA, f"{gain.network} and {BESIDE}"
            yield difference(NAME, where, gain.gain - other.gain, half, gain, other, main=False)


def _cheaper(asked: Comparison, mean: Ratio, *, turned: int) -> Finding:
    """Return the finding on the claim that ViTs are cheaper. Its estimate is the compute of the convolutional family
    divided by ViT's at equal error; YES if this is above 1 beyond chance, and its interval overlaps the claimed
    factors.

    The claim is about the mean error over five sets, which only Table 6 has; of other networks ImageNet error is known.

    Args:
        mean: the mean ratio of the comparison.
        turned: 1 if `mean` is the convolutional family's compute divided by ViT's, -1 if it is the reciprocal.
    """
    low, value, high = sorted(wording.or_nan(number) ** turned for number in (mean.low, mean.ratio, mean.high))
    borne_out = mean.decided and value > 1 and low <= STATED[1] and high >= STATED[0]
    return _ratio(Claimed.CHEAPER, asked, (value, low, high), decided=mean.decided, borne_out=borne_out)


def _shrinking(asked: Comparison, small: Ratio, large: Ratio) -> Finding:
    """Return the finding on the claim that the lead of hybrids shrinks with size. Its estimate is ViT's compute divided
    by the smallest hybrid's at equal error (`small`), divided by the same ratio for the largest hybrid (`large`); YES
    if this is above 1 beyond chance."""
    logs = [math.log(wording.or_nan(r.ratio)) for r in (small, large)]
    half = math.hypot(*(math.log(wording.or_nan(r.high) / wording.or_nan(r.low)) / 2 for r in (small, large)))
    lead = logs[0] - logs[1]
    numbers = math.exp(lead), math.exp(lead - half), math.exp(lead + half)
    decided = abs(lead) > half
    return _ratio(Claimed.HYBRIDS, asked, numbers, decided=decided, borne_out=decided and lead > 0)


def _ratio(
    claim: Claimed, asked: Comparison, numbers: tuple[float, float, float], *, decided: bool, borne_out: bool
) -> Finding:
    estimate, low, high = numbers
    return Finding(
        question=NAME,
        subject=(claim, asked.name),
        verdict=(Verdict.YES if borne_out else Verdict.NO) if decided else Verdict.CANNOT_TELL,
        reasons=() if decided else (Reason.WITHIN_INTERVAL,),
        quantity="compute ratio",
        unit=Unit.TIMES,
        estimate=estimate,
        low=low,
        high=high,
        level=LEVEL,
        n=Counts(test_images=TEST_IMAGES),
        main=asked.controlled,
        evidence=(asked, *by_metric(asked)),
    )


def say(f: Finding) -> Iterator[str]:
    explained = {
        Claimed.CHEAPER: "The compute of the convolutional networks over ViT's at equal error. Borne out: above 1 by "
        f"more than chance, with an interval that overlaps {OVERLAP}.",
        Claimed.HYBRIDS: "ViT's compute over that of the smallest hybrid, divided by the same of the largest. Borne "
        "out: above 1 by more than chance.",
        Claimed.DATA: "The gain from ImageNet-21k over ImageNet-1k, ViT's minus that of the other network. Borne out: "
        "above 0 by more than chance.",
    }
    yield explained[Claimed(f.subject[0])]
    yield f"{f.subject[1]}: {wording.number(f).text} {of(f)}. {CHANCE}" if of(f) else ""
    for asked in wording.every(f, Comparison):
        yield f"Not controlled; besides, these differ: {asked.differs}." if asked.differs else "Controlled."


def of(f: Finding) -> str:
    """Return a text for a finding on a ratio: what the ratio is, and the same ratio by other metrics; "" for a finding
    on gains."""
    metrics = wording.every(f, ByMetric)
    if f.subject[0] == Claimed.HYBRIDS:
        by = in_other_metrics([(m.metric, m.shrinks) for m in metrics])
        return f"at equal {TOP1} error, the smallest hybrid's saving over the largest's{by}"
    if f.subject[0] != Claimed.CHEAPER:
        return ""
    if len(metrics) == 1:
        return f"at equal {TOP1} error"
    *others, average = [(m.metric, m.ratio) for m in metrics]
    return f"at equal error, {MEAN}{in_other_metrics([average, *others])}"


def _lies(f: Finding) -> str:
    """Return "within" or "overlaps" with the claimed range of factors: whether a finding's estimate is within that
    range, or only its interval overlaps the range."""
    inside = f.estimate is not None and STATED[0] <= f.estimate <= STATED[1]
    return f"{'within' if inside else 'overlaps'} {OVERLAP}"


QUESTION = Question(
    name=NAME,
    label="As the paper claims?",
    text="Do published networks bear out what the ViT paper claims?",
    yes="borne out",
    no="not borne out",
    ask=ask,
    say=say,
    reasons={
        Reason.UNREPLICATED: "The interval excludes training noise: single trainings may differ as much by chance."
    },
    items=(Comparison, ByMetric, Gain),
    of=of,
    order=14,
    subject=lambda f: ": ".join(f.subject),
    verdict=lambda f: (_lies(f), "yes") if f.subject[0] == Claimed.CHEAPER and f.verdict == Verdict.YES else None,
    is_of_pairs=True,
)
