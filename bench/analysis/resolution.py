"""Fine-tuning at a higher resolution against the model's own: the same model, seed and images at both sizes.

Where records say which test images were right, the two sizes are compared image by image (`bench.stats.paired`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from bench.analysis import compare
from bench.analysis.answers.answer import Answer
from bench.analysis.compare import Comparison
from bench.analysis.evidence import Evidence
from bench.core.formatting import plural, points
from bench.stats import paired
from bench.stats.intervals import IMAGES, Estimate, Samples, difference, estimate, pool, z_quantile
from bench.stats.paired import Paired

QUESTION = "Is fine-tuning better at {} px than at the size of pre-training?"
NOTE = "test images count as if each size had its own, which overstates their error"
HIGHER = re.compile(r"finetune@(?P<size>\d+)px:(?P<data>.+)")


@dataclass(frozen=True, kw_only=True)
class Contrast:
    """Higher minus own resolution of one model; `paired` is None where single answers cannot be compared."""

    comparison: Comparison
    paired: Paired | None


def contrasts(evidence: Evidence) -> dict[tuple[str, str], list[Contrast]]:
    """Higher minus own resolution at the last horizon of every model: (size, data) -> one contrast per model."""
    found = {}
    for measure in evidence.measures:
        if (name := HIGHER.fullmatch(measure)) is None:
            continue
        both = {
            s: (d, paired.pair(high, own), (high.mean + own.mean) / 2)
            for s in evidence.series
            if (high := evidence.samples(s.last, measure))
            and (own := evidence.samples(s.last, f"finetune:{name['data']}"))
            and (d := difference(high, own))
        }
        pooled = pool((s.variant, d) for s, (d, _, _) in both.items())
        made = [
            Contrast(
                comparison=Comparison(
                    subject=s.label, family=s.family, what=f"{name['size']} px − own", measure=measure, point=s.last,
                    estimate=estimate(_with_error(d, images), pooled=pooled, level=evidence.level), accuracy=around,
                ),
                paired=images,
            )
            for s, (d, images, around) in both.items()
        ]  # fmt: skip
        if made:
            found[name["size"], name["data"]] = made
    return found


def answers(evidence: Evidence) -> list[Answer]:
    """One per size and data set; empty for a study that fine-tunes at one size."""
    made = []
    for (size, data), found in contrasts(evidence).items():
        comparisons = [c.comparison for c in found]
        mean = overall(found)
        verdict = compare.verdict(mean, compare.mean_accuracy(comparisons), models=len(found))
        up, down = (sum(c.verdict == wanted for c in comparisons) for wanted in ("yes", "no"))
        sentence = (
            f"{points(mean.value, mean.low, mean.high)} on average over {plural(len(found), 'pre-trained model')}; "
            f"beyond its own interval: {up} up, {down} down ({mean.runs} each, {_images(found, mean)})."
        )
        made.append(Answer(question=QUESTION.format(size), subject=data, verdict=verdict, sentence=sentence,
                           estimate=mean.value, low=mean.low, high=mean.high, unit="share", n=len(found)))  # fmt: skip
    return made


def overall(found: Sequence[Contrast]) -> Estimate:
    """The mean over models. Their errors over test images are averaged, unless all are known image by image."""
    mean, _ = compare.overall([c.comparison for c in found])
    images = paired.mean_of([c.paired for c in found])
    if images is None:
        return mean
    return replace(mean, margins={**mean.margins, IMAGES: z_quantile(mean.level) * images.error})


def _with_error(samples: Samples, images: Paired | None) -> Samples:
    return samples if images is None else replace(samples, image_error=images.error)


def _images(found: Sequence[Contrast], mean: Estimate) -> str:
    """How the error over test images was found."""
    number, tests = sum(c.paired is not None for c in found), f"{mean.num_test:,} test images"
    if not number:
        return f"{tests}, unpaired: {NOTE}"
    if number == len(found):
        return f"paired over {tests}"
    return f"paired over {tests} for {plural(number, 'model')}, unpaired for {len(found) - number}: there {NOTE}"
