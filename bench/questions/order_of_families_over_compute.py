"""Does one family overtake the other as compute grows, judged from measured points without a fit?

Does the first (ViT) overtake the second (ResNet)? NO: the second overtakes the first.

Findings:
    low, high: the last x at which one is ahead, the first at which the other is; no estimate.
    leader: who is ahead beyond, or throughout.
    trend: first - second.
"""

from __future__ import annotations

from collections.abc import Iterator

from bench.analysis import order
from bench.analysis.evidence import HEADLINE, Evidence
from bench.analysis.finding import Axis, Finding
from bench.analysis.frontiers import Gaps, at_compute
from bench.analysis.question import FACTS, Question

NAME = "order of families over compute"


def ask(evidence: Evidence) -> Iterator[Finding]:
    """ViT against ResNet, where there are both."""
    if (both := order.vit_and_resnet(evidence)) is None:
        return
    series, vit, resnet = both
    gaps = at_compute(evidence, series, vit, resnet, HEADLINE)
    if isinstance(gaps, Gaps):
        yield order.finding_of(NAME, Axis.COMPUTE, gaps, main=not order.by_law(evidence, Axis.COMPUTE))


QUESTION = Question(
    name=NAME,
    label="Order over compute?",
    text="Does one family overtake the other as compute grows, judged from measured points without a fit?",
    yes="{} overtakes",
    no="{} overtakes",
    tones=FACTS,
    ask=ask,
    say=order.say,
    number=order.number,
    reasons=order.REASONS,
    order=210,
    about_two=True,
    counts_together=True,
    sentence=order.sentence,
    shown_in=("frontier", "compute"),
)
