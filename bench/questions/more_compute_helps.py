"""Does training a model for longer help?"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from bench.analysis import wording
from bench.analysis.comparisons import Pair, compare, compared_series, families_of, mean_finding, with_upstream
from bench.analysis.evidence import Evidence, Point, Series
from bench.analysis.finding import ALL_MODELS, Contrast, Finding
from bench.analysis.question import Question

NAME = "more compute helps"


def ask(evidence: Evidence) -> Iterator[Finding]:
    """Per measure, each family's and all models' longest budget against their shortest."""
    series = compared_series(evidence)
    families = families_of(series)
    ends = [_longer(Contrast.LEAST_COMPUTE, s, s.points[0], s.last) for s in series if len(s.points) > 1]
    steps = [_longer(Contrast.PREVIOUS_BUDGET, s, a, b) for s in series for a, b in pairwise(s.points)]
    for measure in with_upstream(evidence):
        found, single = compare(evidence, ends, measure), compare(evidence, steps, measure)
        for subject in (*families, *([ALL_MODELS] if len(families) > 1 else [])):
            mine = [c for c in found if subject in (c.family, ALL_MODELS)]
            if mine:
                items = [c.item for c in single if subject in (c.family, ALL_MODELS)]
                yield mean_finding(NAME, [subject], mine, evidence=items)


def _longer(contrast: Contrast, series: Series, base: Point, point: Point) -> Pair:
    return Pair(
        contrast=contrast, model=series.label, point=point, base=base, from_x=base.images_seen, to_x=point.images_seen
    )


QUESTION = Question(
    name=NAME,
    label="Longer training",
    text="Does training a model for longer help?",
    yes="helps",
    no="hurts",
    ask=ask,
    say=wording.differences,
    order=230,
)
"""A model's longest minus its shortest budget, mean over the family's models (or `ALL_MODELS`). evidence: each model
(`Contrast.LEAST_COMPUTE`) and each step (`Contrast.PREVIOUS_BUDGET`)."""
