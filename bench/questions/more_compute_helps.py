"""Does training a model for longer help?

The accuracy of each model at its longest budget is compared with its accuracy at its shortest; differences are averaged
over the models of a family, and over all models (`ALL_MODELS`).

Findings:
    evidence: the difference of each model (contrast `LEAST_COMPUTE`), and of each step between consecutive budgets
        (contrast `PREVIOUS_BUDGET`).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from bench.analysis import wording
from bench.analysis.comparisons import Pair, compare, compared_series, families_of, mean_finding, with_upstream
from bench.analysis.evidence import Evidence, Point, Series
from bench.analysis.finding import ALL_MODELS, Difference, Finding, Verdict
from bench.analysis.question import Question
from bench.core.formatting import plural

NAME = "more compute helps"
LEAST_COMPUTE, PREVIOUS_BUDGET = "least compute", "previous budget"  # contrasts


def ask(evidence: Evidence) -> Iterator[Finding]:
    """Yield one finding for each score and family, and one for each score over the models of all families."""
    series = compared_series(evidence)
    families = families_of(series)
    ends = [_longer(LEAST_COMPUTE, s, s.points[0], s.last) for s in series if len(s.points) > 1]
    steps = [_longer(PREVIOUS_BUDGET, s, a, b) for s in series for a, b in pairwise(s.points)]
    for measure in with_upstream(evidence):
        overall, single = compare(evidence, ends, measure), compare(evidence, steps, measure)
        for subject in (*families, *([ALL_MODELS] if len(families) > 1 else [])):
            mine = [c for c in overall if subject in (c.family, ALL_MODELS)]
            if mine:
                items = [c.item for c in single if subject in (c.family, ALL_MODELS)]
                yield mean_finding(NAME, [subject], mine, evidence=items)


def _longer(contrast: str, series: Series, base: Point, point: Point) -> Pair:
    return Pair(
        contrast=contrast, model=series.label, point=point, base=base, from_x=base.images_seen, to_x=point.images_seen
    )


def say(f: Finding) -> list[str]:
    """Return sentences on the models behind the mean difference, and on the steps between consecutive budgets."""
    steps = [d.verdict for d in wording.every(f, Difference) if d.contrast == PREVIOUS_BUDGET]
    texts = wording.differences(f, contrast=LEAST_COMPUTE)
    if steps:
        higher, lower = steps.count(Verdict.YES), steps.count(Verdict.NO)
        texts.append(f"Between consecutive budgets ({plural(len(steps), 'step')}): {higher} higher, {lower} lower.")
    return texts


QUESTION = Question(
    name=NAME,
    label="Longer training helps?",
    text="Does training a model for longer help?",
    yes="helps",
    no="hurts",
    ask=ask,
    say=say,
    order=230,
    sentence=lambda f: wording.effect(f, "Longer training", gives="gives", costs="costs"),
    shown_in=("compute",),
)
