"""At how much compute does another run reach a target accuracy?

Findings:
    subject: a family.
    estimate: compute at which the family reaches the target. The interval is that of one more run.
    low, high: ends of the interval; None for an end outside the range in which the law is evaluated.
    evidence: `AccuracyTarget`.
"""

from __future__ import annotations

from functools import partial

from bench.analysis import targets
from bench.analysis.finding import Axis
from bench.analysis.question import FACTS, Question
from bench.analysis.targets import AccuracyTarget

NAME = "compute for a target"

QUESTION = Question(
    name=NAME,
    label="Compute for {target}?",
    text="At how much compute does another run reach {target} accuracy?",
    yes="reached",
    no="not reached",
    tones=FACTS,
    ask=partial(targets.targets, name=NAME, axis=Axis.COMPUTE),
    say=targets.say,
    reasons=targets.REASONS,
    items=(AccuracyTarget,),
    order=180,
    target=targets.target,
    sentence=targets.sentence,
    shown_in=("laws",),
)
