"""The study in a few sentences, made from its findings: what somebody reads who reads nothing else."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence

from bench.analysis.answers import ratio, saturation
from bench.analysis.compare import Verdict
from bench.core.formatting import join
from bench.report.finding import Finding

AHEAD = "Which family is ahead at equal compute?"
ALL = "All models"
ON_FAR = " far tasks"  # in a question
UNTRAINED, PIXELS = "Do trained networks beat untrained", "Do trained networks beat raw pixels"
CLAUSES = 4  # of one sentence; many families make many pairs
SUBJECTS = 8  # that are named; more are counted
Sentence = Callable[[Sequence[Finding]], str]


def summary(found: Sequence[Finding], *, first: Sequence[str] = ()) -> tuple[str, ...]:
    """One sentence per question that was asked: those of the suite's own (`first`), then the comparison of families.
    Headline tasks, with the far tasks beside them where both were asked about."""
    made = [_by_verdict(question, "yes for", "no for")([f for f in found if f.question == question])
            for question in first]  # fmt: skip
    for start, sentence in SENTENCES:
        asked = [f for f in found if (f.main or ON_FAR in f.question) and f.question.startswith(start)]
        told = start == UNTRAINED and any(f.question.startswith(PIXELS) for f in found)  # by the harder question
        if not told and any(f.main and f.subject != ALL for f in asked):
            made.append(sentence(asked))
    return tuple(made)


def _clauses(lead: str) -> Sentence:
    """Answers that differ by subject: each in its clause, then those that cannot tell, with the reason."""

    def sentence(asked: Sequence[Finding]) -> str:
        parts = [f.short for f in asked if f.verdict != "cannot tell" and f.short]
        reasons: dict[str, list[str]] = {}
        for f in asked:
            if f.verdict == "cannot tell":
                reasons.setdefault(_reason(f.answer), []).append(f.subject)
        unknown = [f"cannot tell for {join(who)} ({why})" for why, who in reasons.items()]
        if not parts and len(reasons) == 1 and len(asked) > 1:
            return f"{lead}: cannot tell for any two families ({next(iter(reasons))})."
        parts = [*parts[:CLAUSES], f"{len(parts) - CLAUSES} more below"] if len(parts) > CLAUSES else parts
        return f"{lead}: {'; '.join(parts + unknown[:CLAUSES])}."

    return sentence


def _reason(answer: str) -> str:
    """The first clause of an answer: why it cannot tell."""
    clause = re.split(r"[:.] |\.$", answer)[0]
    return clause[:1].lower() + clause[1:]


def _by_verdict(lead: str, yes: str, no: str) -> Sentence:
    """Answers alike for many subjects: for whom it is a yes, for whom a no, for whom that cannot be told."""

    def sentence(asked: Sequence[Finding]) -> str:
        headline, far = ([f for f in asked if (ON_FAR in f.question) == wanted] for wanted in (False, True))
        near, beyond = (_grouped(findings, yes, no) for findings in (headline, far))
        if not beyond:
            return f"{lead} {near}."
        if near == beyond:
            return f"{lead} {near} on the headline and the far tasks."
        return f"{lead} {near} on the headline tasks; on the far tasks {beyond}."

    return sentence


def _grouped(asked: Sequence[Finding], yes: str, no: str) -> str:
    """Subjects by verdict; "" for no findings."""
    named: dict[Verdict, str] = {"yes": yes, "no": no, "cannot tell": "cannot tell for"}
    if len(asked) > SUBJECTS:
        number = [f"{verdict} for {count}" for verdict, count in Counter(f.verdict for f in asked).most_common()]
        return f"{', '.join(number)} of {len(asked)}"
    apart = [f for f in asked if f.subject != ALL] or asked
    groups = {word: [f.subject for f in apart if f.verdict == verdict] for verdict, word in named.items()}
    return "; ".join(f"{word} {join(who)}" for word, who in groups.items() if who)


SENTENCES: tuple[tuple[str, Sentence], ...] = (
    (AHEAD, _clauses("At equal compute")),
    (ratio.QUESTION, _clauses("For equal accuracy")),
    (saturation.QUESTION, _by_verdict("At the top of the range, more compute:", "has stopped helping", "still helps")),
    ("Does more compute help", _by_verdict("Training one model for longer:", "helps", "hurts")),
    ("Do more distinct", _by_verdict("More distinct pre-training images:", "help", "hurt")),
    (UNTRAINED, _by_verdict("Trained against untrained:", "better for", "worse for")),
    (PIXELS, _by_verdict("Trained against raw pixels:", "better for", "worse for")),
)
