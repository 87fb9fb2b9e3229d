"""Does one family overtake the other as compute grows, judged from measured points without a fit?

The families are ViT (first) and ResNet (second). YES: the first overtakes the second. NO: the reverse.

Findings:
    low, high: the last compute at which one family is ahead, and the first at which the other is. There is no estimate.
    leader: the family that is ahead after the change; if the order does not change, the family that is ahead
        throughout.
    trend: accuracy gap, first - second, at every budget.
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
    """Yield one finding on ViT and ResNet, if the study has both."""
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
