"""Do trained networks beat untrained ones?

A family's trained models minus the same networks before training.

Findings:
    evidence: each model on the measure and on each of its tasks, and (model "") the mean over models of each task
        (contrast "untrained").
"""

from __future__ import annotations

from functools import partial

from bench.analysis import baselines, wording
from bench.analysis.question import Question

NAME = "beats untrained"

QUESTION = Question(
    name=NAME,
    label="Better than untrained?",
    text="Do trained networks beat untrained ones?",
    yes="better",
    no="worse",
    ask=partial(baselines.beats, name=NAME, against=baselines.against_untrained),
    say=wording.differences,
    order=250,
    sentence=lambda f: wording.effect(f, "Training", gives="gives", costs="costs", tail=" over the untrained network"),
)
