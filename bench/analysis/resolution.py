"""Fine-tuning at a higher resolution against the model's own: the same model, seed and images at both sizes."""

from __future__ import annotations

import re

from bench.analysis import compare
from bench.analysis.answers.answer import Answer
from bench.analysis.compare import Comparison
from bench.analysis.evidence import Evidence
from bench.analysis.intervals import difference, estimate, pool
from bench.analysis.words import plural, points

QUESTION = "Is fine-tuning better at {} px than at the size of pre-training?"
NOTE = "test images count as if each size had its own, which overstates their error"
HIGHER = re.compile(r"finetune@(?P<size>\d+)px:(?P<data>.+)")


def contrasts(evidence: Evidence) -> dict[tuple[str, str], list[Comparison]]:
    """Higher minus own resolution at the last horizon of every model: (size, data) -> one comparison per model."""
    found = {}
    for measure in evidence.measures:
        if (name := HIGHER.fullmatch(measure)) is None:
            continue
        both = {
            s: d
            for s in evidence.series
            if (high := evidence.samples(s.last, measure))
            and (own := evidence.samples(s.last, f"finetune:{name['data']}"))
            and (d := difference(high, own))
        }
        pooled = pool((s.variant, d) for s, d in both.items())
        made = [
            Comparison(subject=s.label, family=s.family, what=f"{name['size']} px − own", measure=measure, point=s.last,
                       estimate=estimate(d, pooled=pooled, level=evidence.level))
            for s, d in both.items()
        ]  # fmt: skip
        if made:
            found[name["size"], name["data"]] = made
    return found


def answers(evidence: Evidence) -> list[Answer]:
    """One per size and data set; empty for a study that fine-tunes at one size."""
    made = []
    for (size, data), found in contrasts(evidence).items():
        mean, verdict = compare.overall(found)
        up, down = (sum(c.verdict == wanted for c in found) for wanted in ("yes", "no"))
        sentence = (
            f"{points(mean.value, mean.low, mean.high)} on average over {plural(len(found), 'pre-trained model')}; "
            f"beyond its own interval: {up} up, {down} down ({mean.counts} each; {NOTE})."
        )
        made.append(Answer(question=QUESTION.format(size), subject=data, verdict=verdict, sentence=sentence,
                           estimate=mean.value, low=mean.low, high=mean.high, unit="share", n=len(found)))  # fmt: skip
    return made
