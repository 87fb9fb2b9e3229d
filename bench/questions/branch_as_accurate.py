"""Are models cooled down from one trunk as accurate as models trained to each budget on their own?

A trunk is one long run; before each budget, a branch leaves it, on which the learning rate falls to zero.

Findings:
    subject: the schedule of the models trained to one budget each: "same" (as a branch), or the shape of one cool-down
        over the whole run ("cosine").
    estimate: accuracy of the branch minus that of separate training; a branch that is lower by less than `MARGIN`
        counts as equal. None if all pairs are identical, because both take the same steps on the same images.
    evidence: the difference of each model and budget (contrast "own training").
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from bench.analysis import branches, wording
from bench.analysis.branches import contrasts, identical, measures
from bench.analysis.comparisons import mean_finding, overall
from bench.analysis.evidence import Evidence
from bench.analysis.finding import Difference, Finding, Unit, Verdict
from bench.analysis.question import Question
from bench.analysis.table import Column, Table
from bench.analysis.wording import Number
from bench.core.formatting import count
from bench.core.phrase import phrase

NAME = "branch as accurate"
IDENTICAL = "identical"  # reason of a finding: all scores are equal to the last digit
MARGIN = 0.01  # branches count as equally accurate if their accuracy is lower by less than this


def ask(evidence: Evidence) -> Iterator[Finding]:
    """Yield one finding for each score and each schedule of separate training; none for a study that did not train both
    on branches and separately."""
    for measure in measures(evidence):
        for name, differences in contrasts(evidence, measure).items():
            finding = replace(mean_finding(NAME, [name], differences), main=True)
            if all(identical(c) for c in differences):  # the same computation twice: an interval would mean nothing
                finding = replace(
                    finding,
                    verdict=Verdict.YES,
                    reasons=(IDENTICAL,),
                    margin=None,
                    estimate=None,
                    low=None,
                    high=None,
                    quantity=None,
                    unit=Unit.NONE,
                    excluded=(),
                )
            elif overall(differences)[0].low > -MARGIN:
                finding = replace(finding, verdict=Verdict.YES, reasons=(), margin=None)
            yield finding


def subject(f: Finding) -> str:
    return f"{f.subject[0]} schedule"


def tables(evidence: Evidence) -> tuple[Table, ...]:
    """Return a table with one row per model and budget, as a tuple: accuracy of the branch, and its difference from
    each other way of training; () if nothing can be compared."""
    measure = branches.measures(evidence)[:1]
    by_way = branches.contrasts(evidence, measure[0]) if measure else {}
    rows: dict[tuple[str, int], dict[str, Any]] = {}
    for way, comparisons in by_way.items():
        for c in comparisons:
            point, model = c.pair.point, c.pair.model
            row = rows.setdefault((model, point.images_seen), {"model": model, "seen": point.images_seen})
            row |= {"accuracy": evidence.estimate(point, measure[0]), way: 0.0 if identical(c) else c.estimate}
    columns = (
        Column(key="model", heading="Model", numeric=False),
        Column(key="seen", heading="Images seen", text=count),
        Column(key="accuracy", heading=f"Branch, {measure[0]} [%]" if measure else ""),
        *(
            Column(key=way, heading=f"Branch − own, {way} schedule [points]", text=lambda _: "identical")
            for way in by_way
        ),
    )
    saved = "; ".join(f"{s.model} {s.flops:.2f} for {s.budgets} budgets" for s in branches.savings(evidence))
    table = Table(
        name="branching",
        title="Branches against models trained on their own",
        columns=columns,
        rows=tuple(rows.values()),
        note=f"Compute, branches over own: {saved}.",
    )
    return (table,) if rows else ()


def pairs(f: Finding) -> int:
    """Return the number of pairs behind a finding; a pair is one model at one budget, trained both on a branch and
    separately."""
    return sum(d.measure == f.measure and bool(d.model) for d in wording.every(f, Difference))


def number(f: Finding) -> Number:
    """Return the difference as it is printed, with its interval; if all pairs are identical, words that say so."""
    if IDENTICAL not in f.reasons:
        return wording.number(f)
    text = f"identical in {pairs(f)} of {pairs(f)} pairs"
    return Number(text=text, short=text)


def sentence(f: Finding) -> str:
    if IDENTICAL in f.reasons:
        are = "Cool-down branches are identical, by construction, to trainings of their own"
        return f"{are} ({subject(f)}), in {pairs(f)} of {pairs(f)} pairs"
    equal = "at least as accurate as" if f.verdict == Verdict.YES else "less accurate than"
    return phrase(f"Cool-down branches are {equal} trainings of their own ({subject(f)}): ", wording.number(f).text)


QUESTION = Question(
    name=NAME,
    label="Branches as accurate?",
    text="Are cool-down branches as accurate as training each budget on its own?",
    yes="as accurate",
    no="less accurate",
    ask=ask,
    say=lambda f: [] if IDENTICAL in f.reasons else wording.differences(f),
    reasons={IDENTICAL: "By construction: both take the same steps on the same images, and no chance is in between."},
    order=40,
    subject=subject,
    tables=tables,
    number=number,
    sentence=sentence,
    shown_in=("branching",),
)
