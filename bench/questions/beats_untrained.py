"""Do trained networks beat untrained ones?

The models of a family after training are compared with the same networks before training.

Findings:
    evidence: the difference of each model, on the score itself and on each of the tasks behind it, and the mean over
        models on each task (`model` ""); the contrast is "untrained".
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
