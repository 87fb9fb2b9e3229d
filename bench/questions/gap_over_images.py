"""At equal compute, does one family gain on the other with more images?

Two families that were trained on several sizes of a data set (the data-size axis) are compared at one compute budget.

Findings:
    estimate: change of the gap in accuracy, first - second, per tenfold distinct images.
    trend: the gap at every number of images.
    leader: the family that gains.
    evidence: `FamilyBudget` of each family; `Closing` and `HeldOut` if both have a fitted law at this budget.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from bench.analysis import catch_up
from bench.analysis.budgets import FamilyBudget, one_budget
from bench.analysis.catch_up import Closing, HeldOut, by_law, finding_of, say
from bench.analysis.comparisons import compared_series, counts, unreplicated_noise
from bench.analysis.contrast import contrast, slope_weights
from bench.analysis.evidence import HEADLINE, Evidence
from bench.analysis.finding import Axis, Finding
from bench.analysis.gap_series import GapSeries, gap_series
from bench.analysis.question import FACTS, Question
from bench.analysis.scaling_laws import Law, laws
from bench.stats.intervals import SEEDS, UNBOUNDED, Estimate
from bench.stats.levels import p_value

NAME = "gap over images"


def ask(evidence: Evidence) -> Iterator[Finding]:
    """Yield a finding for every two families that were trained on several sizes of a data set, and every budget that
    both have. The finding at the largest budget is the main one."""
    series = gap_series(evidence) if compared_series(evidence) else ()
    by_images = laws(evidence, axis=Axis.IMAGES) if series else {}
    asked: set[tuple[str, str]] = set()
    for line in series:
        pair = [by_images.get(name) for name in line.families]
        of_line = [
            law
            for law, model in zip(pair, line.models, strict=True)
            if law and all(p.model == model and one_budget(p.train_flops, line.flops) for p in law.points)
        ]
        yield _over_images(evidence, line, of_line, main=line.families not in asked)
        asked.add(line.families)


def _over_images(evidence: Evidence, line: GapSeries, pair: Sequence[Law], *, main: bool) -> Finding:
    places = line.places
    slope, beside = slope_over_images(evidence, line)
    seen = [sorted({p.images_seen for p in side}) for side in ([q.first for q in places], [q.second for q in places])]
    budgets = [
        FamilyBudget(family=name, flops=(line.flops, line.flops), images_seen=(s[0], s[-1]))
        for name, s in zip(line.names, seen, strict=True)
    ]
    where_laws_meet = by_law(*pair) if len(pair) == 2 else []
    return finding_of(
        NAME,
        line.families if main else line.names,
        Axis.IMAGES,
        slope.value,
        math.hypot(slope.half, beside),
        [p.trend for p in places],
        [*budgets, *where_laws_meet],
        level=slope.level,
        p=p_value(slope, beside=beside),
        n=counts(places[0].estimate, steps=len(places)),
        excluded=slope.excluded,
        main=main,
    )


def slope_over_images(evidence: Evidence, line: GapSeries) -> tuple[Estimate, float]:
    """Return the change of the gap per tenfold images by least squares, and the margin that is added to its interval
    for the noise between single training runs (0 if training was repeated). Noise that several points share, such as
    that of the test images, cancels or adds up as it does in the slope."""
    weights = slope_weights([p.x for p in line.places])
    first = [(weight, p.first) for weight, p in zip(weights.tolist(), line.places, strict=True)]
    second = [(weight, p.second) for weight, p in zip(weights.tolist(), line.places, strict=True)]
    made = contrast(evidence, first, second, HEADLINE)
    assert made is not None  # every place has scores, on seeds and draws that all share
    accuracy = float(np.mean([p.accuracy for p in line.places]))
    single = unreplicated_noise(accuracy) * float(np.linalg.norm(weights))
    return replace(made[0], bounds=UNBOUNDED), single if SEEDS in made[0].excluded else 0.0


QUESTION = Question(
    name=NAME,
    label="Gains with 10× images?",
    text="At equal compute, does one family gain on the other with more images?",
    yes="{} gains",
    no="{} gains",
    tones=FACTS,
    ask=ask,
    say=say,
    items=(FamilyBudget, Closing, HeldOut),
    order=100,
    about_two=True,
    counts_together=True,
    sentence=partial(catch_up.sentence, x="images"),
    shown_in=("gap", "data-size"),
)
