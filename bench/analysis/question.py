"""The interface of a question: how it is answered from a study's records, and how its findings are put into words.

A file in `bench/questions/` exports one question as `QUESTION`. Its name, which is also in `Finding.question`, is the
file's name with spaces: "more compute helps" is in `more_compute_helps.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from bench.analysis import wording
from bench.analysis.evidence import Evidence
from bench.analysis.finding import Finding, Item
from bench.analysis.table import Table
from bench.analysis.wording import Number, Sentence
from bench.study import registry

Tone = Literal["yes", "no", "fact", "unsure"]
FACTS: tuple[Tone, Tone] = ("fact", "fact")


@dataclass(frozen=True, kw_only=True)
class Question:
    """A question: the function that answers it, and its words. Defaults of most fields suit most questions.

    Attributes:
        name: name of its file, with spaces.
        label: the question in a few words, the heading of its row in tables. It and `text` may contain "{target}".
        text: the question in full.
        yes: words for the verdict YES; "{}" in it is replaced by the leader.
        no: words for the verdict NO; "{}" in it is replaced by the leader.
        ask: evidence -> findings; it returns none if the records say nothing about the question.
        say: finding -> sentences that explain its number.
        tones: tones of YES and NO, which determine colour and symbol.
        reasons: reason -> its words, for reasons that only this question gives, or that it words differently.
        items: classes of evidence that only its findings have.
        order: position in a report; low numbers come first. Findings of questions whose `order` has the same whole
            number are sorted by measure (score). The default, 0, puts a suite's own question first.
        about_two: whether the subject of its findings is an ordered pair of families.
        states_basis: whether a finding's text names the tasks and the range of compute that the verdict is based on.
        at_a_glance: whether it is shown in the tables of answers and on the console, and may be the title of a report.
        number: finding -> its estimate with the interval.
        of: finding -> what its number measures, for use in a sentence about something else.
        subject: finding -> the names that it is about.
        measure: finding -> words after the label if it is not about the main tasks, such as ", upstream"; else "".
        target: finding -> text that takes the place of "{target}".
        verdict: finding -> its verdict in words, and the tone, if these differ from `yes`, `no` and `tones`; else None.
        tables: evidence -> tables that only this question has.
        figures: files of bench/report/figures/ that are drawn if the question has a finding.
        sentence: finding -> its answer, if decided, as one sentence with the interval but without the full stop. None:
            the sentence is made of `text`, the verdict and the number.
        together: findings on many subjects -> one sentence about all of them, for questions of which no single finding
            represents the others; None if there is no such sentence.
        shown_in: figures that show the answer, and may have it as their title.
        leads: finding -> whether it may become the title of a report before others, because it was asked for by name,
            or has a meaningful interval.
        usage: finding -> a program that uses what was found; "" without one.
        counts_together: whether it asks for a difference between families, so that its findings have a `p` and are
            corrected for multiple testing together with those of other such questions
            (`bench.analysis.questions.held`).
        is_of_pairs: whether it chooses what it compares, and says which comparisons are controlled. If the evidence is
            not controlled (`Evidence.controlled`), only the answers of such questions are main findings.
    """

    name: str
    label: str
    text: str
    yes: str
    no: str
    ask: Callable[[Evidence], Iterable[Finding]]
    say: Callable[[Finding], Iterable[str]] = lambda f: ()
    tones: tuple[Tone, Tone] = ("yes", "no")
    reasons: Mapping[str, Sentence] = field(default_factory=dict)
    items: tuple[type[Item], ...] = ()
    order: float = 0
    about_two: bool = False
    states_basis: bool = False
    at_a_glance: bool = True
    number: Callable[[Finding], Number] = wording.number
    of: Callable[[Finding], str] = lambda f: ""
    subject: Callable[[Finding], str] = wording.subject
    measure: Callable[[Finding], str] = wording.measure
    target: Callable[[Finding], str] = lambda f: ""
    verdict: Callable[[Finding], tuple[str, Tone] | None] = lambda f: None
    tables: Callable[[Evidence], Sequence[Table]] = lambda evidence: ()
    figures: tuple[str, ...] = ()
    sentence: Callable[[Finding], str] | None = None
    together: Callable[[Sequence[Finding]], str | None] = lambda found: None
    shown_in: tuple[str, ...] = ()
    leads: Callable[[Finding], bool] = lambda f: False
    usage: Callable[[Finding], str] = lambda f: ""
    counts_together: bool = False
    is_of_pairs: bool = False


def question_of(finding: Finding) -> Question:
    """Return the question that a finding answers.

    Raises:
        UserError: the question's file does not exist.
    """
    return load(finding.question)


def load(name: str) -> Question:
    """Return the question with this name, which may have spaces ("more compute helps") or hyphens.

    Raises:
        UserError: there is none, or its file is broken.
    """
    question: Question = registry.load("question", name.replace(" ", "-"))
    return question
