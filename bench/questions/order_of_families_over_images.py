"""Does one family overtake the other as images increase, judged from measured points without a fit?

This is the question "order of families over compute" with distinct pre-training images in place of compute.
"""

from __future__ import annotations

from collections.abc import Iterator

from bench.analysis import order
from bench.analysis.comparisons import size_curves
from bench.analysis.evidence import HEADLINE, Evidence
from bench.analysis.finding import Axis, Finding
from bench.analysis.frontiers import at_images
from bench.analysis.question import FACTS, Question

NAME = "order of families over images"


def ask(evidence: Evidence) -> Iterator[Finding]:
    """Yield one finding on ViT and ResNet, if the study has both."""
    if (both := order.vit_and_resnet(evidence)) is None:
        return
    _, vit, resnet = both
    gaps = at_images(evidence, size_curves(evidence), vit, resnet, HEADLINE)
    if gaps is not None:
        yield order.finding_of(NAME, Axis.IMAGES, gaps, main=not order.by_law(evidence, Axis.IMAGES))


QUESTION = Question(
    name=NAME,
    label="Order over images?",
    text="Does one family overtake the other as images increase, judged from measured points without a fit?",
    yes="{} overtakes",
    no="{} overtakes",
    tones=FACTS,
    ask=ask,
    say=order.say,
    number=order.number,
    reasons=order.REASONS,
    order=220,
    about_two=True,
    counts_together=True,
    sentence=order.sentence,
    shown_in=("data-size", "gap"),
)
