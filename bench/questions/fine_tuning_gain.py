"""How much better is fine-tuning everything than the best probe of the same model, and how much longer does it take?

A probe is fitted to the features of the frozen network. Both use the same labelled images; the probe is the best one by
cross-validation within them. They are compared test image by test image.

Findings:
    subject: data set, model.
    YES: fine-tuning is better on the test images, beyond the interval.
    evidence: `TunedAndProbed`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from bench.analysis import wording
from bench.analysis.adaptation import TUNED, WAYS, Adapted, adapted, compared, metrics, on, probes
from bench.analysis.comparisons import difference_finding
from bench.analysis.evidence import Evidence
from bench.analysis.finding import Finding, Item
from bench.analysis.question import Question
from bench.core.formatting import count, duration, percent

NAME = "fine tuning gain"


@dataclass(frozen=True, kw_only=True)
class TunedAndProbed(Item):
    """The scores of one model on one data set, fine-tuned and adapted with its best probe (a classifier on frozen
    features).

    Attributes:
        way: the kind of probe, a key of `adaptation.WAYS`.
        images: number of labelled images.
        tuned, probed: score on the test images of the fine-tuned network and of the probe.
        tuned_seconds, probed_seconds: time that fine-tuning and the probe took; None if it was not measured.
    """

    way: str
    images: float
    tuned: float
    probed: float
    tuned_seconds: float | None
    probed_seconds: float | None


def fine_tuning_gain(evidence: Evidence) -> Iterator[Finding]:
    """Yield one finding for each data set and model that was both fine-tuned and adapted with a probe."""
    for metric in metrics(evidence):
        every = adapted(evidence, metric)
        best = {(one.data, one.model): one for one in reversed(probes(every))}
        pairs = ((one, best.get((one.data, one.model))) for one in every if one.way == TUNED)
        yield from (made for tuned, probe in pairs if probe and (made := _compared(tuned, probe)))


def _compared(tuned: Adapted, probe: Adapted) -> Finding | None:
    if (both := compared(tuned, probe)) is None:
        return None
    e, paired = both
    values = tuned.samples[-1].mean, probe.samples[-1].mean
    return replace(
        difference_finding(NAME, (on(tuned.data, tuned.metric), tuned.model), e, sum(values) / 2, paired=paired),
        evidence=(
            TunedAndProbed(
                way=probe.way,
                images=tuned.images[-1],
                tuned=values[0],
                probed=values[1],
                tuned_seconds=tuned.seconds,
                probed_seconds=probe.seconds,
            ),
        ),
    )


# -- words -------------------------------------------------------------------------------------------------------------


def say(f: Finding) -> list[str]:
    both = wording.first(f, TunedAndProbed)
    assert both is not None
    return [
        f"With {count(both.images)} labelled images: {WAYS[TUNED]} {percent(both.tuned)} %, "
        f"{WAYS[both.way]} {percent(both.probed)} %.",
        f"Time on the device of the study: {duration(both.tuned_seconds)} with the choice of its learning rate, "
        f"against {duration(both.probed_seconds)} for the features and the fit.",
    ]


QUESTION = Question(
    name=NAME,
    label="Better fine-tuned?",
    text="Is fine-tuning everything better than the best probe of the same model?",
    yes="better",
    no="worse",
    ask=fine_tuning_gain,
    say=say,
    items=(TunedAndProbed,),
    order=5.5,
    subject=lambda f: f"{f.subject[1]}, {f.subject[0]}",
    shown_in=("adaptation",),
)
