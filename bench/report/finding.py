"""What a finding is, and how all findings of a study read on a console."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from bench.analysis.answers import Claim
from bench.analysis.compare import Verdict
from bench.analysis.cost_summary import Spent
from bench.analysis.validity import Check

OPEN = ("How much", "How many", "At what", "At how many", "Where", "Which family", "Which run")
"""Beginnings of questions that a number or a name answers: "yes" before it would say nothing."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One answer.

    Attributes:
        question: shared by findings about different subjects.
        subject: whom it is about: a family, a pair of families, a task.
        verdict: for the mean over the subject's models, beyond its interval.
        answer: a sentence with numbers.
        short: the same in a clause, for the summary; "" where the verdict says it.
        counts: n behind the answer, where `answer` does not say it.
        evidence: the comparisons behind it, one dictionary each (accuracy units, not percent).
        main: on the headline tasks; the others (far tasks, upstream) are shown below them.
    """

    question: str
    subject: str
    verdict: Verdict
    answer: str
    short: str = ""
    counts: str = ""
    evidence: tuple[dict[str, Any], ...] = ()
    main: bool = True

    @property
    def word(self) -> str:
        """The verdict as it is printed: nothing before the answer to an open question."""
        return "" if self.verdict == "yes" and self.question.startswith(OPEN) else self.verdict


@dataclass(frozen=True, kw_only=True)
class Findings:
    """Everything a report says in words.

    Attributes:
        summary: the study in a few sentences.
        note: what holds for every finding and is said once, before them.
        claims: the paper's, beside the verdict from these records and from the paper's own table; () where no law could
            be fitted.
        published: the numbers are quoted: nothing was run, nothing was spent.
    """

    findings: tuple[Finding, ...]
    limits: tuple[str, ...]
    checks: tuple[Check, ...]
    cost: Spent
    summary: tuple[str, ...] = ()
    note: str = ""
    claims: tuple[Claim, ...] = ()
    published: bool = False

    @property
    def records(self) -> str:
        """What the claims are held against."""
        return "in its own numbers" if self.published else "in these records"

    def lines(self) -> list[str]:
        """Plain text for a console: the summary, main findings by question, what cannot be told, warnings, cost."""
        text = ["In short", *(f"  - {sentence}" for sentence in self.summary)] if self.summary else []
        text += [self.note] if self.note else []
        main = [f for f in self.findings if f.main]
        for question in dict.fromkeys(f.question for f in main):
            text.append(question)
            text += [f"  {_said(f)}" for f in main if f.question == question]
        if self.claims:
            text.append(f"The paper's claims, {self.records}")
            text += [f"  {c.verdict}: {c.claim}{_table_6(c, self.published)}" for c in self.claims]
        text += ["What this study cannot tell", *(f"  - {limit}" for limit in self.limits)]
        warnings = [f"  - {c.text}" for c in self.checks if c.level == "warning"]
        text += ["Warnings", *warnings] if warnings else []
        return text if self.published else [*text, "Cost", f"  {self.cost.sentence}"]


def _said(f: Finding) -> str:
    return f"{f.subject}: {f.word}. {f.answer}" if f.word else f"{f.subject}: {f.answer}"


def _table_6(claim: Claim, published: bool) -> str:
    return f" (Its own Table 6: {claim.paper}.)" if claim.paper and not published else ""


def say_counts_once(found: Sequence[Finding]) -> tuple[list[Finding], str]:
    """The findings, n added to the answers where it is not the usual one; and the usual one."""
    counted = Counter(f.counts for f in found if f.counts and f.main) or Counter(f.counts for f in found if f.counts)
    if not counted:
        return list(found), ""
    usual = counted.most_common(1)[0][0]
    return [
        replace(f, answer=f"{f.answer} n: {f.counts}.") if f.counts not in ("", usual) else f for f in found
    ], usual
