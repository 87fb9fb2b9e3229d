"""A question: how it is asked of records, and how its findings are put into words.

A file in `bench/questions/` exports one as `QUESTION`. Its name is that of the file with spaces, which is what
`Finding.question` says: "more compute helps" lies in `more_compute_helps.py`.
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
    """A question, what answers it, and its words. All but the first seven fields have defaults that suit most.

    Attributes:
        name: the name of its file, with spaces.
        label: the question in a few words, the heading of its row. It may hold "{target}", as `text` may.
        text: the question in full.
        yes: what the verdict YES is called; "{}" in it is the leader.
        no: what the verdict NO is called.
        ask: evidence -> findings; none where the records do not bear on the question.
        say: finding -> sentences that explain its number.
        tones: of YES and NO; they choose colour and symbol.
        reasons: words of reasons that only this question gives, or gives in words of its own.
        items: dataclasses of its own that its findings hold as evidence.
        order: place in a report, low first; questions of one whole number are answered measure by measure, not one
            after the other. A suite's own question comes first, which is the default.
        about_two: its subject is a pair of families, in this order.
        states_basis: its text names the tasks and the range of compute that the verdict rests on.
        at_a_glance: it is shown in the tables of answers and on the console, and may be the title of a report.
        number: finding -> the estimate with its interval.
        of: finding -> what the number is of, where it stands alone in a sentence about something else.
        subject: finding -> the names that it is about.
        measure: finding -> what follows the label where it is not about the headline: ", upstream".
        target: finding -> what stands for "{target}".
        verdict: finding -> its verdict and tone where `yes` and `no` do not hold them; None where they do.
        tables: evidence -> tables of its own.
        figures: files of bench/report/figures/ that are drawn where it found something.
        sentence: finding -> a decided answer as one sentence with its interval, without the full stop; None: made of
            `text`, the verdict and the number.
        together: answers for many subjects -> what they say as one sentence, where that of one of them would stand for
            nothing; None where they say no such thing.
        shown_in: figures that show its answer, and may have it as their title.
        leads: finding -> whether it may have the title before others: it was asked for by name, or has an interval that
            says something.
        usage: finding -> a program that uses what it found; "" without.
        counts_together: it asks for a difference between families, of which a report asks many: together their verdicts
            err as rarely as one alone (`bench.analysis.questions.held`). Its findings have a `p`.
        is_of_pairs: it chooses what it compares, and says which comparisons are controlled. Where the evidence is not
            (`Evidence.controlled`), answers of other questions are no main ones.
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
    """The question that a finding answers.

    Raises:
        UserError: its file is not there.
    """
    return load(finding.question)


def load(name: str) -> Question:
    """The question of a name, which may have spaces.

    Raises:
        UserError: there is none, or its file is broken.
    """
    question: Question = registry.load("question", name.replace(" ", "-"))
    return question
