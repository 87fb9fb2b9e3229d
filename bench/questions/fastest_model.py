"""Which model is the fastest at inference?

Each model is measured at its best batch size, in several rounds at different times. The interval is that of the ratio
of mean speeds over rounds; the variance between rounds is pooled over all models and image sizes of the study.

Findings:
    subject: image size in pixels, device.
    estimate: speed of the fastest model divided by that of the second fastest.
    leader: the fastest model.
    evidence: `InferenceSpeed` of every model at this size and device, the fastest first.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bench.analysis import wording
from bench.analysis.evidence import Evidence
from bench.analysis.finding import Counts, Finding, Item, Reason, Unit, Verdict
from bench.analysis.question import FACTS, Question
from bench.core.formatting import plural, significant
from bench.core.phrase import phrase
from bench.stats.intervals import t_quantile

NAME = "fastest model"
ONE_ROUND = "one round"  # reason of a finding: no model was measured in two rounds


@dataclass(frozen=True, kw_only=True)
class InferenceSpeed(Item):
    """A model's inference speed: the geometric mean of images per second over `rounds` rounds of measurement."""

    model: str
    images_per_second: float
    rounds: int


def ask(evidence: Evidence) -> Iterator[Finding]:
    """Yield one finding for each image size (the largest first) and device at which several models were measured."""
    places: dict[tuple[int, str], dict[str, list[float]]] = {}
    for record in evidence.records.records:
        if record.speed is not None and record.speed.inference is not None:
            at = record.cell.image_size, record.speed.conditions.device
            if speed := record.speed.inference.images_per_second.median:
                places.setdefault(at, {}).setdefault(record.cell.model, []).append(math.log(speed))
    repeated = [logs for models in places.values() for logs in models.values() if len(logs) > 1]
    freedom = sum(len(logs) - 1 for logs in repeated)
    variance = sum((len(logs) - 1) * statistics.variance(logs) for logs in repeated) / freedom if freedom else None
    for (pixels, device), models in sorted(places.items(), reverse=True):
        ranked = sorted(models.items(), key=lambda model: -statistics.fmean(model[1]))
        if len(ranked) > 1:
            half = None
            if variance is not None:
                error = math.sqrt(variance * sum(1 / len(logs) for _, logs in ranked[:2]))
                half = t_quantile(freedom, evidence.level) * error
            yield _finding((f"{pixels} px", device), ranked, half, evidence.level)


def _finding(
    subject: tuple[str, str], ranked: Sequence[tuple[str, list[float]]], half: float | None, level: float
) -> Finding:
    """Return the finding for one image size and device.

    Args:
        subject: image size and device, such as ("224 px", "cuda").
        ranked: (model, logarithm of its speed in each round), the fastest model first.
        half: half-width of the interval of the difference between the mean logarithms of the first two models; None if
            unknown.
        level: confidence level of the interval.
    """
    first, second = (statistics.fmean(logs) for _, logs in ranked[:2])
    is_decided = half is not None and first - second > half
    return Finding(
        question=NAME,
        subject=subject,
        verdict=Verdict.YES if is_decided else Verdict.CANNOT_TELL,
        measure="",
        reasons=() if is_decided else (ONE_ROUND if half is None else Reason.WITHIN_INTERVAL,),
        leader=ranked[0][0],
        quantity="speed ratio",
        unit=Unit.TIMES,
        estimate=math.exp(first - second),
        low=None if half is None else math.exp(first - second - half),
        high=None if half is None else math.exp(first - second + half),
        level=level,
        n=Counts(models=len(ranked), runs=sum(len(logs) for _, logs in ranked)),
        evidence=tuple(
            InferenceSpeed(model=model, images_per_second=math.exp(statistics.fmean(logs)), rounds=len(logs))
            for model, logs in ranked
        ),
    )


def say(f: Finding) -> list[str]:
    speeds = wording.every(f, InferenceSpeed)
    said = "; ".join(f"{s.model} {significant(s.images_per_second)}" for s in speeds)
    return [f"Images/s of the whole device: {said} (means over {plural(speeds[0].rounds, 'round')})."]


def sentence(f: Finding) -> str:
    second = wording.every(f, InferenceSpeed)[1].model
    times = phrase(f"{significant(wording.or_nan(f.estimate))} times ", wording.bracket(f.low, f.high, significant))
    return phrase(f"At {f.subject[0]} {f.leader} is the fastest at inference, ", times, f" as fast as {second}")


QUESTION = Question(
    name=NAME,
    label="Fastest at inference?",
    text="Which model is the fastest at inference?",
    yes="{}",
    no="none is",
    tones=FACTS,
    ask=ask,
    say=say,
    reasons={ONE_ROUND: "No model was measured in two rounds."},
    items=(InferenceSpeed,),
    order=20,
    subject=lambda f: f.subject[0],
    sentence=sentence,
    shown_in=("throughput",),
)
