"""Do trained networks beat raw pixels?

For each family, the probe on its model with the most compute is compared with the same probe on raw pixels.

Findings:
    evidence: the differences of this model, on the score itself and on each of the tasks behind it; those on tasks are
        repeated with `model` "", as means over models (here of one). The contrast is "raw pixels".
"""

from __future__ import annotations

from functools import partial

from bench.analysis import baselines, wording
from bench.analysis.finding import Verdict
from bench.analysis.question import Question
from bench.core.phrase import phrase

NAME = "beats raw pixels"

QUESTION = Question(
    name=NAME,
    label="Better than the pixel baseline?",
    text="Do trained networks beat the pixel baseline?",
    yes="better",
    no="worse",
    ask=partial(baselines.beats, name=NAME, against=baselines.against_pixels),
    say=wording.differences,
    order=250.5,
    sentence=lambda f: phrase(
        f"{wording.subject(f)} {'beats' if f.verdict == Verdict.YES else 'loses to'} the pixel baseline by ",
        wording.amount(f),
    ),
)
