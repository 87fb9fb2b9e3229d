"""The study in a few sentences, made from its findings: what somebody reads who reads nothing else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from bench.analysis.answers import ratio, saturation
from bench.analysis.compare import Verdict
from bench.analysis.finding import Finding
from bench.analysis.words import join

AHEAD = "Which family is ahead at equal compute?"
ALL = "All models"
CLAUSES = 4  # of one sentence; many families make many pairs
SUBJECTS = 8  # that are named; more are counted
Sentence = Callable[[Sequence[Finding]], str]


def summary(found: Sequence[Finding], *, first: Sequence[str] = ()) -> tuple[str, ...]:
    """One sentence per question that was asked: those of the suite's own (`first`), then the comparison of families.
    Headline tasks only."""
    made = [_by_verdict(question, "yes for", "no for")([f for f in found if f.question == question])
            for question in first]  # fmt: skip
    for start, sentence in SENTENCES:
        asked = [f for f in found if f.main and f.question.startswith(start)]
        if any(f.subject != ALL for f in asked):
            made.append(sentence(asked))
    return tuple(made)


def _clauses(lead: str) -> Sentence:
    """Answers that differ by subject: each in its clause, then those that cannot tell."""

    def sentence(asked: Sequence[Finding]) -> str:
        parts = [f.short for f in asked if f.verdict != "cannot tell" and f.short]
        unknown = [f.subject for f in asked if f.verdict == "cannot tell"]
        if not parts:
            return f"{lead}: cannot tell for any two families."
        parts = [*parts[:CLAUSES], f"{len(parts) - CLAUSES} more below"] if len(parts) > CLAUSES else parts
        parts += [f"cannot tell for {join(unknown)}"] if unknown else []
        return f"{lead}: {'; '.join(parts)}."

    return sentence


def _by_verdict(lead: str, yes: str, no: str) -> Sentence:
    """Answers alike for many subjects: for whom it is a yes, for whom a no, for whom that cannot be told."""

    def sentence(asked: Sequence[Finding]) -> str:
        named: dict[Verdict, str] = {"yes": yes, "no": no, "cannot tell": "cannot tell for"}
        if len(asked) > SUBJECTS:
            number = [f"{verdict} for {count}" for verdict, count in Counter(f.verdict for f in asked).most_common()]
            return f"{lead} {', '.join(number)} of {len(asked)}."
        apart = [f for f in asked if f.subject != ALL] or asked
        groups = {word: [f.subject for f in apart if f.verdict == verdict] for verdict, word in named.items()}
        return f"{lead} {'; '.join(f'{word} {join(who)}' for word, who in groups.items() if who)}."

    return sentence


SENTENCES: tuple[tuple[str, Sentence], ...] = (
    (AHEAD, _clauses("At equal compute")),
    (ratio.QUESTION, _clauses("For equal accuracy")),
    (saturation.QUESTION, _by_verdict("At the top of the range, more compute:", "has stopped helping", "still helps")),
    ("Does more compute help", _by_verdict("Training one model for longer:", "helps", "hurts")),
    ("Do more distinct", _by_verdict("More distinct pre-training images:", "help", "hurt")),
    ("Do trained networks beat raw pixels", _by_verdict("Training against raw pixels:", "better for", "worse for")),
)
