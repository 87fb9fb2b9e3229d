"""Is fine-tuning better at a higher resolution than the model's own, with the same model, seed and images?

If records say which test images were right, the two resolutions are compared image by image (`bench.stats.paired`).
Data sets whose stored images are smaller than the higher resolution are left out, because enlarging adds no detail.

Findings:
    subject: data set, the higher resolution in pixels.
    evidence: the difference of each model (contrast "own resolution").
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from bench.analysis import wording
from bench.analysis.comparisons import Pair, PairedDifference, mean_finding, overall
from bench.analysis.evidence import Evidence
from bench.analysis.finding import Finding, Verdict
from bench.analysis.question import Question
from bench.core.formatting import plural
from bench.core.measure import FINETUNE, Measure
from bench.core.phrase import phrase
from bench.data.load import side_of
from bench.stats import paired
from bench.stats.intervals import IMAGES, Estimate, difference, estimate, pool, z_quantile
from bench.stats.paired import Paired

NAME = "resolution gain"
UNPAIRED = "unpaired"
"""Reason of a finding: only `n.paired` of `n.models` models were compared image by image. For the others, the two
resolutions are treated as having independent test sets, which overestimates the error."""

PairedComparison = tuple[PairedDifference, Paired | None]
"""A model's difference, and the same difference image by image. The second is None if answers to single images were not
recorded, or not for the same images."""


def compared(evidence: Evidence) -> dict[tuple[str, str], list[PairedComparison]]:
    """Return (data set, higher resolution in pixels) -> for each model at its longest budget, its accuracy when
    fine-tuned at the higher resolution minus that at its own resolution."""
    pairs = {}
    for measure in evidence.measures:
        named = Measure.parse(measure)
        pixels = named.pixels
        if named.task != FINETUNE or pixels is None or named.shots is not None:
            continue
        if (side := side_of(named.data)) is not None and side < pixels:
            continue
        both = {
            s: (d, paired.pair(high, own), (high.mean + own.mean) / 2)
            for s in evidence.series
            if (high := evidence.samples(s.last, measure))
            and (own := evidence.samples(s.last, str(replace(named, sizes=()))))
            and (d := difference(high, own))
        }
        pooled = pool(d for d, _, _ in both.values())
        made: list[PairedComparison] = []
        for s, (d, images, accuracy) in both.items():
            pair = Pair(contrast="own resolution", model=s.label, point=s.last, base=s.last, to_x=float(pixels))
            d = d if images is None else replace(d, image_error=images.error)
            e = estimate(d, pooled=pooled, level=evidence.level)
            made.append((PairedDifference(pair=pair, measure=measure, estimate=e, accuracy=accuracy), images))
        if made:
            pairs[named.data, str(pixels)] = made
    return pairs


def resolution_gain(evidence: Evidence) -> Iterator[Finding]:
    """Yield one finding for each data set and higher resolution; none for a study that fine-tunes at one resolution
    only."""
    for subject, pairs in compared(evidence).items():
        known = sum(images is not None for _, images in pairs)
        yield replace(
            mean_finding(
                NAME,
                subject,
                [c for c, _ in pairs],
                mean=mean_over_models(pairs),
                paired=known,
                reasons=[] if known == len(pairs) else [UNPAIRED],
            ),
            main=True,
        )


def mean_over_models(pairs: Sequence[PairedComparison]) -> Estimate:
    """Return the mean of several models' differences. If all models were compared image by image, so is the mean's
    error over test images; otherwise the errors of the models are averaged."""
    mean, _ = overall([comparison for comparison, _ in pairs])
    images = paired.mean_of([answers for _, answers in pairs])
    if images is None:
        return mean
    return replace(mean, margins={**mean.margins, IMAGES: z_quantile(mean.level) * images.error})


def subject(f: Finding) -> str:
    data, pixels = f.subject
    return f"fine-tuned on {data.removesuffix(f':{pixels}px')} at {pixels} px"


QUESTION = Question(
    name=NAME,
    label="Better with more pixels?",
    text="Is fine-tuning better at a higher resolution?",
    yes="better",
    no="worse",
    ask=resolution_gain,
    say=wording.differences,
    reasons={
        UNPAIRED: lambda f: (
            f"{f.n.paired} of {plural(f.n.models, 'model')} compared image by image; for the others "
            "the error over test images is overestimated."
        )
    },
    order=50,
    subject=subject,
    sentence=lambda f: phrase(
        f"F{subject(f)[1:]}, models are {'better' if f.verdict == Verdict.YES else 'worse'} than at their own size, ",
        "by ",
        wording.amount(f),
    ),
)
