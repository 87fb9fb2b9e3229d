"""The study in a few sentences, made from its findings: what somebody reads who reads nothing else."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bench.analysis.answers import ratio, saturation
from bench.analysis.compare import Verdict
from bench.analysis.finding import Finding
from bench.analysis.words import join

AHEAD = "Which family is ahead at equal compute?"
Sentence = Callable[[Sequence[Finding]], str]


def summary(found: Sequence[Finding]) -> tuple[str, ...]:
    """One sentence per question that was asked, the comparison of families first. Headline tasks only."""
    made = []
    for start, sentence in SENTENCES:
        asked = [f for f in found if f.main and f.question.startswith(start)]
        if asked:
            made.append(sentence(asked))
    return tuple(made)


def _clauses(lead: str) -> Sentence:
    """Answers that differ by subject: each in its clause, then those that cannot tell."""

    def sentence(asked: Sequence[Finding]) -> str:
        parts = [f.short for f in asked if f.verdict != "cannot tell" and f.short]
        unknown = [f.subject for f in asked if f.verdict == "cannot tell"]
        parts += [f"cannot tell for {join(unknown)}"] if unknown else []
        return f"{lead}: {'; '.join(parts)}."

    return sentence


def _by_verdict(lead: str, yes: str, no: str) -> Sentence:
    """Answers alike for many subjects: who is a yes, who a no, who cannot be told."""

    def sentence(asked: Sequence[Finding]) -> str:
        named: dict[Verdict, str] = {"yes": yes, "no": no, "cannot tell": "cannot tell"}
        groups = {word: [f.subject for f in asked if f.verdict == verdict and f.subject != "All models"]
                  for verdict, word in named.items()}  # fmt: skip
        return f"{lead}: {'; '.join(f'{word} for {join(who)}' for word, who in groups.items() if who)}."

    return sentence


SENTENCES: tuple[tuple[str, Sentence], ...] = (
    (AHEAD, _clauses("At equal compute")),
    (ratio.QUESTION, _clauses("For equal accuracy")),
    (saturation.QUESTION, _by_verdict("At the top of the range, more compute", "has stopped helping", "still helps")),
    ("Does more compute help", _by_verdict("More compute for one model helps", "yes", "no, it hurts,")),
    ("Do more distinct", _by_verdict("More distinct images help", "yes", "no, they hurt,")),
    ("Do trained networks beat raw pixels", _by_verdict("Training beats raw pixels", "yes", "no, pixels are better,")),
)
