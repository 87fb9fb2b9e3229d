"""With how many distinct images does another run reach a target accuracy?

This is the question "compute for a target" with distinct pre-training images in place of compute.
"""

from __future__ import annotations

from functools import partial

from bench.analysis import targets
from bench.analysis.finding import Axis
from bench.analysis.question import FACTS, Question
from bench.analysis.targets import AccuracyTarget

NAME = "images for a target"

QUESTION = Question(
    name=NAME,
    label="Images for {target}?",
    text="With how many distinct images does another run reach {target} accuracy?",
    yes="reached",
    no="not reached",
    tones=FACTS,
    ask=partial(targets.targets, name=NAME, axis=Axis.IMAGES),
    say=targets.say,
    reasons=targets.REASONS,
    items=(AccuracyTarget,),
    order=190,
    target=targets.target,
    sentence=targets.sentence,
    shown_in=("data-size",),
)
