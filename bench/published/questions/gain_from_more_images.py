"""Question: how much accuracy does a published network gain from pre-training on ImageNet-21k instead of ImageNet-1k?

Findings:
    subject: the network and its recipe.
    estimate: accuracy on ImageNet-1k after pre-training on the larger set, minus that after the smaller set.
    main: whether nothing but the images differs.
    evidence: the `Gain`.
"""

from __future__ import annotations

from collections.abc import Iterator

from bench.analysis import wording
from bench.analysis.evidence import Evidence
from bench.analysis.finding import Finding
from bench.analysis.question import Question
from bench.core.formatting import percent
from bench.published.matched import Gain, gains
from bench.published.public_evidence import is_public
from bench.published.wording import difference

NAME = "gain from more images"


def ask(evidence: Evidence) -> Iterator[Finding]:
    """Yield one finding per network that was published with both sets."""
    for gain in gains() if is_public(evidence) else ():
        yield difference(NAME, (gain.network,), gain.gain, gain.half, gain, main=not gain.differs)


def say(f: Finding) -> Iterator[str]:
    for gain in wording.every(f, Gain):
        besides = f"; besides the images, these differ: {gain.differs}" if gain.differs else ""
        yield f"{gain.network}: {percent(gain.fewer)} to {percent(gain.more)} %{besides}."


QUESTION = Question(
    name=NAME,
    label="ImageNet-21k helps?",
    text="How much does a network gain from ImageNet-21k over ImageNet-1k?",
    yes="more accurate",
    no="less accurate",
    ask=ask,
    say=say,
    items=(Gain,),
    order=12,
    sentence=lambda f: wording.effect(f, "ImageNet-21k in place of ImageNet-1k", gives="gives", costs="costs"),
    figures=("published-frontiers", "published-gains"),
    is_of_pairs=True,
)
