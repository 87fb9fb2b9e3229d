"""At how many images do the fitted laws of ViT and ResNet cross?

This is the question "crossing over compute" with distinct pre-training images in place of compute.

Findings:
    evidence: `FamilyBudget` of each family, the compute that was spent on its runs.
"""

from __future__ import annotations

from functools import partial

from bench.analysis import law_crossings
from bench.analysis.budgets import FamilyBudget
from bench.analysis.families import RESNET, VIT
from bench.analysis.finding import Axis
from bench.analysis.question import FACTS, Question

NAME = "crossing over images"

QUESTION = Question(
    name=NAME,
    label="Cross at what images?",
    text="At how many images do the fitted laws cross?",
    yes="{} ahead beyond",
    no="{} ahead beyond",
    tones=FACTS,
    ask=partial(law_crossings.crossings, name=NAME, axis=Axis.IMAGES, kinds=(VIT, RESNET)),
    say=law_crossings.say,
    reasons=law_crossings.REASONS,
    items=(FamilyBudget, law_crossings.TaskCrossing),
    order=160,
    about_two=True,
    number=law_crossings.number,
    counts_together=True,
    sentence=law_crossings.sentence,
    shown_in=("data-size",),
)
