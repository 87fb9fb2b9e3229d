"""At what compute do hybrids (a ViT behind the first layers of a ResNet) stop helping?

The answer is the compute from which on ViT (first) is ahead of the hybrids (second), by their fitted laws (error over
compute).

Findings:
    leader: the family that is ahead beyond the crossing of the laws; if they do not cross, the family that is ahead
        throughout.
"""

from __future__ import annotations

from functools import partial

from bench.analysis import law_crossings
from bench.analysis.families import HYBRID, VIT
from bench.analysis.finding import Axis
from bench.analysis.question import FACTS, Question

NAME = "hybrids stop helping"

QUESTION = Question(
    name=NAME,
    label="Hybrids help up to?",
    text="At what compute do hybrids stop helping?",
    yes="{} ahead beyond",
    no="{} ahead beyond",
    tones=FACTS,
    ask=partial(law_crossings.crossings, name=NAME, axis=Axis.COMPUTE, kinds=(VIT, HYBRID)),
    say=law_crossings.say,
    reasons=law_crossings.REASONS,
    items=(law_crossings.TaskCrossing,),
    order=150,
    about_two=True,
    number=law_crossings.number,
    counts_together=True,
    sentence=law_crossings.sentence,
    shown_in=("laws",),
)
