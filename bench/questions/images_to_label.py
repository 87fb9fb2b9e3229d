"""How many more images have to be labelled for an accuracy?

The question is about the best model in its best way of adapting with a frozen network. The targets are those that the
user gave (`--target`), or else the next round accuracy above the present one. The answer comes from
`bench.laws.labelling`, not from a scaling law of training runs. The interval is of the number of images with which the
same model reaches the accuracy with other labelled images and other test images; its coverage was measured
(results/reference/coverage/labelling.md).

Findings:
    subject: data set; model and way of adapting.
    YES: the target is reached already, or will be with at most REACH times the images even at the upper end of the
        interval.
    NO: REACH times the images are not enough, even at the lower end of the interval.
    estimate: number of labelled images in all.
    evidence: `Labelling`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

from bench.analysis import wording
from bench.analysis.adaptation import Adapted, adapted, metrics, on, probes
from bench.analysis.evidence import HEADLINE, Evidence
from bench.analysis.finding import Axis, Counts, Finding, Item, Reason, Unit, Verdict
from bench.analysis.question import FACTS, Question
from bench.analysis.wording import Number, bracket, shown
from bench.core.formatting import count, percent
from bench.core.metrics import ACCURACY
from bench.core.phrase import phrase
from bench.laws.bootstrap import LAW_LEVEL
from bench.laws.extrapolation import MIN_PLACES, REACH
from bench.laws.labelling import LabellingCurve, images_needed

NAME = "images to label"
TARGETS = (0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 0.98, 0.99, 0.995)

# Reasons of a finding (`Finding.reasons`).
OUT_OF_REACH = "out of reach"  # REACH times the images are probably not enough
OPEN_ABOVE = "open above"  # REACH times the images are probably enough, but the interval's upper end is beyond


@dataclass(frozen=True, kw_only=True)
class Labelling(Item):
    """A target score of an adapted model, and what it has reached so far.

    Attributes:
        target: the score to reach.
        accuracy: the present score on the test images, with all labelled images.
        images: present number of labelled images.
        classes: number of classes.
        asked: whether the user gave the target.
        chance: probability that REACH times the images are enough; None if unknown.
        metric: the metric of both scores, a key of `bench.core.metrics.METRICS`.
    """

    target: float
    accuracy: float
    images: float
    classes: int
    asked: bool
    chance: float | None = None
    metric: str = ACCURACY

    def more(self, images: float) -> float:
        """Return how many more images per class have to be labelled so that there are `images` in all, rounded up."""
        return math.ceil((images - self.images) / self.classes - 1e-9)


def images_to_label(evidence: Evidence) -> Iterator[Finding]:
    """Yield one finding for each data set, metric and target. If the user gave no targets, and the present accuracy is
    above every round target, yield none."""
    best: dict[tuple[str, str], Adapted] = {}
    for metric in metrics(evidence):
        for one in probes(adapted(evidence, metric)):
            best.setdefault((one.data, metric), one)
    for one in best.values():
        now = one.samples[-1].mean
        for target in evidence.targets or [accuracy for accuracy in TARGETS if accuracy > now][:1]:
            yield _asked(one, target, named=bool(evidence.targets))


def _asked(one: Adapted, target: float, *, named: bool) -> Finding:
    now = one.samples[-1].mean
    item = Labelling(
        target=target, accuracy=now, images=one.images[-1], classes=one.classes, asked=named, metric=one.metric
    )
    made = partial(
        Finding,
        question=NAME,
        subject=(on(one.data, one.metric), one.name),
        measure=HEADLINE,
        quantity="images",
        unit=Unit.IMAGES,
        level=LAW_LEVEL,
        axis=Axis.IMAGES,
        n=Counts(points=len(one.images), draws=max(len(s.draws) for s in one.samples)),
    )
    if now >= target:
        return made(verdict=Verdict.YES, evidence=(item,))
    found = images_needed(observed(one), 1 - target)
    if found is None:
        return made(verdict=Verdict.CANNOT_TELL, reasons=(Reason.TOO_FEW_POINTS,), evidence=(item,))
    made = partial(made, evidence=(replace(item, chance=found.chance),))
    if math.isinf(found.low):
        return made(verdict=Verdict.NO)
    if math.isinf(found.high):
        out = math.isinf(found.images)
        made = partial(made, verdict=Verdict.CANNOT_TELL, reasons=(OUT_OF_REACH if out else OPEN_ABOVE,))
        return made(estimate=None if out else found.images, low=found.low)
    reach = found.images / item.images
    return made(verdict=Verdict.YES, estimate=found.images, low=found.low, high=found.high, reach=reach)


def observed(one: Adapted) -> LabellingCurve:
    """Return the test errors of an adapted model at every number of labelled images, with every few-shot sample of that
    number."""
    errors = tuple(tuple((1 - s.values_SD.mean(axis=0)).tolist()) for s in one.samples)
    last = one.samples[-1]
    num_test = last.num_test
    if one.metric != ACCURACY or not math.isinf(last.image_df):  # the number of independent images with the same error
        num_test = min(num_test, max(1, round(last.inside * (1 - last.inside) / last.image_error**2)))
    return LabellingCurve(images=one.images, errors=errors, num_test=num_test)


# -- words -------------------------------------------------------------------------------------------------------------


def number(f: Finding) -> Number:
    """Return the number of further images per class as it is printed, with its interval; an empty `Number` if it is
    unknown."""
    asked = wording.first(f, Labelling)
    if asked is None or f.low is None:
        return Number()
    interval = bracket(asked.more(f.low), None if f.high is None else asked.more(f.high), count)
    if f.estimate is None:
        return Number(text=interval, short=interval)
    more = asked.more(f.estimate)
    return shown(more, count(more), "more per class", interval)


def say(f: Finding) -> list[str]:
    asked = wording.first(f, Labelling)
    assert asked is not None
    texts = [f"With all {count(asked.images)} labelled images it has {percent(asked.accuracy)} %."]
    if asked.metric != ACCURACY:
        texts.append("How often such intervals hold was measured for accuracies alone.")
    if f.estimate is not None and f.high is not None and f.low is not None:
        texts.append(f"That is {count(f.estimate)} [{count(f.low)}, {count(f.high)}] images in all.")
    elif asked.chance is not None:
        least = f"It takes {count(f.low)} images or more. " if f.low is not None else ""
        texts.append(f"{least}The chance that {REACH:g} times the images are enough is {percent(asked.chance)} %.")
    return texts


def target(f: Finding) -> str:
    asked = wording.first(f, Labelling)
    return f"{100 * asked.target:.6g} %" if asked else "the target"


def sentence(f: Finding) -> str:
    asked, (data, name) = wording.first(f, Labelling), f.subject
    assert asked is not None
    if f.verdict == Verdict.NO:
        return f"{name} does not reach {target(f)} of {data} with {REACH:g} times the {count(asked.images)} images"
    if f.estimate is None:
        return f"{name} reaches {target(f)} of {data} with the {count(asked.images)} labelled images there are"
    return phrase(f"{name} needs ", number(f).text, f" of {data} for {target(f)}")


QUESTION = Question(
    name=NAME,
    label="Images to label for {target}?",
    text="How many more images have to be labelled for {target} accuracy?",
    yes="reached",
    no="not reached",
    number=number,
    leads=lambda f: bool((asked := wording.first(f, Labelling)) and asked.asked),
    tones=FACTS,
    ask=images_to_label,
    say=say,
    reasons={
        Reason.TOO_FEW_POINTS: f"It takes {MIN_PLACES} numbers of images or more, that is 10 images of a class.",
        OUT_OF_REACH: f"{REACH:g} times the images are not enough, more likely than not.",
        OPEN_ABOVE: f"The interval is open above: {REACH:g} times the images may not be enough.",
    },
    items=(Labelling,),
    order=6,
    subject=lambda f: f.subject[0],
    target=target,
    sentence=sentence,
    shown_in=("adaptation",),
)
