"""The words of every question: its label, the question in full, and what its verdicts are called."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from bench.analysis.finding import Question

Tone = Literal["yes", "no", "fact", "unsure"]


@dataclass(frozen=True, kw_only=True)
class Phrase:
    """Text of one question: short label, full question, the verdicts YES and NO ("{}" is the leader), their tones."""

    label: str
    ask: str
    yes: str
    no: str
    tones: tuple[Tone, Tone] = ("yes", "no")


FACTS: tuple[Tone, Tone] = ("fact", "fact")
PHRASES: dict[Question, Phrase] = {
    Question.BEST_AT_EQUAL_COMPUTE: Phrase(
        label="At equal compute",
        ask="Which family's best model within a budget is ahead?",
        yes="{} ahead",
        no="{} ahead",
        tones=FACTS,
    ),
    Question.ORDER_OVER_COMPUTE: Phrase(
        label="Rank change, compute",
        ask="Does one family overtake the other as compute grows, judged from measured points without a fit?",
        yes="{} overtakes",
        no="{} overtakes",
        tones=FACTS,
    ),
    Question.ORDER_OVER_IMAGES: Phrase(
        label="Rank change, images",
        ask="Does one family overtake the other as images increase, judged from measured points without a fit?",
        yes="{} overtakes",
        no="{} overtakes",
        tones=FACTS,
    ),
    Question.GAP_OVER_IMAGES: Phrase(
        label="Gap per 10× images",
        ask="At equal compute, does one family gain on the other with more images?",
        yes="{} gains",
        no="{} gains",
        tones=FACTS,
    ),
    Question.GAP_OVER_COMPUTE: Phrase(
        label="Gap per 10× compute",
        ask="Does one family gain on the other with more compute, on all images?",
        yes="{} gains",
        no="{} gains",
        tones=FACTS,
    ),
    Question.MORE_COMPUTE_HELPS: Phrase(
        label="Longer training", ask="Does training a model for longer help?", yes="helps", no="hurts"
    ),
    Question.MORE_IMAGES_HELP: Phrase(
        label="More images",
        ask="Do more distinct pre-training images help, at equal images seen?",
        yes="help",
        no="hurt",
    ),
    Question.BEATS_UNTRAINED: Phrase(
        label="vs untrained", ask="Do trained networks beat untrained ones?", yes="better", no="worse"
    ),
    Question.BEATS_PIXELS: Phrase(
        label="vs raw pixels", ask="Do trained networks beat raw pixels?", yes="better", no="worse"
    ),
    Question.COMPUTE_TO_MATCH: Phrase(
        label="Compute ratio",
        ask="How much compute does one family need to match another?",
        yes="{} cheaper",
        no="{} cheaper",
        tones=FACTS,
    ),
    Question.CROSSING_OVER_COMPUTE: Phrase(
        label="Crossover compute",
        ask="At what compute do the fitted laws cross?",
        yes="{} ahead beyond",
        no="{} ahead beyond",
        tones=FACTS,
    ),
    Question.CROSSING_OVER_IMAGES: Phrase(
        label="Crossover images",
        ask="At how many images do the fitted laws cross?",
        yes="{} ahead beyond",
        no="{} ahead beyond",
        tones=FACTS,
    ),
    Question.HYBRIDS_STOP_HELPING: Phrase(
        label="Hybrids help up to",
        ask="At what compute do hybrids stop helping?",
        yes="{} ahead beyond",
        no="{} ahead beyond",
        tones=FACTS,
    ),
    Question.HYBRID_ADVANTAGE_SHRINKS: Phrase(
        label="Lead change per 10×", ask="Does the hybrids' lead shrink with compute?", yes="shrinks", no="grows"
    ),
    Question.SATURATED: Phrase(
        label="Error per 2× compute",
        ask="Does the family still improve at its largest compute?",
        yes="saturated",
        no="improves",
        tones=("no", "yes"),
    ),
    Question.COMPUTE_FOR_TARGET: Phrase(
        label="Compute for {target}",
        ask="How much compute is needed for {target} accuracy?",
        yes="reached",
        no="not reached",
        tones=FACTS,
    ),
    Question.IMAGES_FOR_TARGET: Phrase(
        label="Images for {target}",
        ask="How many distinct images are needed for {target} accuracy?",
        yes="reached",
        no="not reached",
        tones=FACTS,
    ),
    Question.NEXT_RUN: Phrase(
        label="Next run",
        ask="Which additional run would narrow the interval of the compute ratio most?",
        yes="run {}",
        no="run {}",
        tones=FACTS,
    ),
    Question.FASTER_THAN_PEERS: Phrase(
        label="vs fastest library",
        ask="Is training faster than in the fastest other library?",
        yes="faster",
        no="slower",
    ),
    Question.BRANCH_AS_ACCURATE: Phrase(
        label="Branch accuracy",
        ask="Are cool-down branches as accurate as training each budget on its own?",
        yes="as accurate",
        no="less accurate",
    ),
    Question.BRANCHES_SAVE: Phrase(
        label="Branch compute", ask="Do cool-down branches save training compute?", yes="saves", no="costs more"
    ),
    Question.RESOLUTION_GAIN: Phrase(
        label="Higher resolution", ask="Is fine-tuning better at a higher resolution?", yes="better", no="worse"
    ),
    Question.BEST_LEARNING_RATE: Phrase(
        label="Learning rate", ask="What is the best learning rate of each model?", yes="in the sweep", no="at the edge"
    ),
    Question.AS_PUBLISHED: Phrase(
        label="As the paper says",
        ask="Do these runs bear out what the paper says?",
        yes="borne out",
        no="not borne out here",
    ),
}
