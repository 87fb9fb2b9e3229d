"""At what compute do the fitted laws (error over compute) of ViT and ResNet cross?

The answer is the compute from which on ViT (first) is ahead of ResNet (second), by these laws.

Findings:
    NO: they cross in the other direction: ResNet is ahead beyond the crossing.
    leader: the family that is ahead beyond the crossing; if they do not cross, the family that is ahead throughout.
"""

from __future__ import annotations

from functools import partial

from bench.analysis import law_crossings
from bench.analysis.families import RESNET, VIT
from bench.analysis.finding import Axis
from bench.analysis.question import FACTS, Question

NAME = "crossing over compute"

QUESTION = Question(
    name=NAME,
    label="Cross at what compute?",
    text="At what compute do the fitted laws cross?",
    yes="{} ahead beyond",
    no="{} ahead beyond",
    tones=FACTS,
    ask=partial(law_crossings.crossings, name=NAME, axis=Axis.COMPUTE, kinds=(VIT, RESNET)),
    say=law_crossings.say,
    reasons=law_crossings.REASONS,
    items=(law_crossings.TaskCrossing,),
    order=130,
    about_two=True,
    number=law_crossings.number,
    counts_together=True,
    sentence=law_crossings.sentence,
    shown_in=("laws",),
)
