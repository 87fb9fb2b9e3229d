"""Do more distinct pre-training images help, at equal images seen?

Each model trained on the most distinct pre-training images is compared with the same model trained on the fewest; the
differences are averaged over the family's models.

Findings:
    evidence: the difference of each model (contrast "fewest images"), and a `PeakInside` for each model that was best
        with an intermediate number of images.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from bench.analysis import wording
from bench.analysis.comparisons import (
    Pair,
    SizeCurve,
    compare,
    compared_series,
    mean_finding,
    size_curves,
    with_upstream,
)
from bench.analysis.evidence import Evidence
from bench.analysis.finding import Finding, Item
from bench.analysis.question import Question
from bench.core.formatting import count, percent

NAME = "more images help"
PEAK_INSIDE = "peak inside"  # reason of a finding: a model was best with an intermediate number of images


@dataclass(frozen=True, kw_only=True)
class PeakInside(Item, kind="Peak"):
    """A model whose accuracy is highest at an intermediate number of distinct pre-training images.

    Attributes:
        images, accuracy: number of images with the highest accuracy, and that accuracy.
        most_images, most_accuracy: largest number of images, and the accuracy with it.
        overlap: whether the intervals of the two accuracies overlap.
    """

    model: str
    images: int
    accuracy: float
    most_images: int
    most_accuracy: float
    overlap: bool


def ask(evidence: Evidence) -> Iterator[Finding]:
    """Yield one finding for each score and family."""
    curves = size_curves(evidence) if compared_series(evidence) else ()
    for measure in with_upstream(evidence):
        for family in dict.fromkeys(c.family for c in curves):
            mine = [c for c in curves if c.family == family]
            pairs = [
                Pair(
                    contrast="fewest images",
                    model=c.label,
                    point=c.points[-1],
                    base=c.points[0],
                    from_x=c.points[0].unique_images,
                    to_x=c.points[-1].unique_images,
                )
                for c in mine
            ]
            differences = compare(evidence, pairs, measure, apart=True)
            if differences:
                peaks = [peak for c in mine if (peak := _peak(evidence, c, measure)) is not None]
                yield mean_finding(
                    NAME,
                    [family],
                    differences,
                    evidence=peaks,
                    reasons=[PEAK_INSIDE] if peaks else [],
                )


def _peak(evidence: Evidence, curve: SizeCurve, measure: str) -> PeakInside | None:
    """Return the number of images at which a model has the highest score (`measure`), and that score; None if it is the
    smallest or the largest number."""
    known = [(e, p) for p in curve.points if (e := evidence.estimate(p, measure)) is not None]
    if len(known) < 3 or (best := max(known, key=lambda k: k[0].value)) in (known[0], known[-1]):
        return None
    last = known[-1]
    return PeakInside(
        model=curve.label,
        images=best[1].unique_images,
        accuracy=best[0].value,
        most_images=last[1].unique_images,
        most_accuracy=last[0].value,
        overlap=best[0].low <= last[0].high,
    )


QUESTION = Question(
    name=NAME,
    label="More images help?",
    text="Do more distinct pre-training images help, at equal images seen?",
    yes="help",
    no="hurt",
    ask=ask,
    say=partial(wording.differences, x="distinct images"),
    reasons={
        PEAK_INSIDE: lambda f: " ".join(
            f"{p.model} did best with {count(p.images)}: {percent(p.accuracy)} %, against {percent(p.most_accuracy)} % "
            f"with {count(p.most_images)}{' (intervals overlap)' if p.overlap else ''}."
            for p in wording.every(f, PeakInside)
        )
    },
    items=(PeakInside,),
    order=240,
    sentence=lambda f: wording.effect(f, "More images", gives="give", costs="cost"),
    shown_in=("data-size",),
)
