"""Do a model's cool-down branches of one trunk cost less compute than the same budgets trained on their own?

Findings:
    subject: the model.
    estimate: training FLOPs of trunk and branches divided by those of separate runs.
    evidence: `Saving`.
"""

from __future__ import annotations

from collections.abc import Iterator

from bench.analysis import wording
from bench.analysis.branches import Saving, savings
from bench.analysis.evidence import Evidence
from bench.analysis.finding import Counts, Finding, Unit, Verdict
from bench.analysis.question import Question
from bench.core.formatting import plural
from bench.core.phrase import phrase

NAME = "branches save"


def ask(evidence: Evidence) -> Iterator[Finding]:
    for saving in savings(evidence):
        yield Finding(
            question=NAME,
            subject=(saving.model,),
            quantity="compute ratio",
            unit=Unit.TIMES,
            verdict=Verdict.YES if saving.flops < 1 else Verdict.NO,
            estimate=saving.flops,
            n=Counts(seeds=saving.seeds, steps=saving.budgets),
            evidence=(saving,),
        )


def say(f: Finding) -> list[str]:
    return [
        f"Relative to {plural(f.n.steps, 'budget')} trained separately; measured training time: {item.seconds:.2f} ×."
        for item in wording.every(f, Saving)
    ]


QUESTION = Question(
    name=NAME,
    label="Compute of branches?",
    text="Do cool-down branches save training compute?",
    yes="saves",
    no="costs more",
    ask=ask,
    say=say,
    items=(Saving,),
    order=41,
    sentence=lambda f: phrase(
        f"Branches of {wording.subject(f)} take ",
        wording.number(f).text,
        " the compute of training each budget on its own",
    ),
    shown_in=("branching",),
)
