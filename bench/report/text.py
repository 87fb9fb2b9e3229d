"""Findings as text: answers in the words of their questions, and the tables that show them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import compress

from bench.analysis import wording
from bench.analysis.evidence import family_rank
from bench.analysis.finding import ALL_MODELS, Counts, Finding, Reason, Verdict
from bench.analysis.findings import Findings
from bench.analysis.question import Question, Tone, question_of
from bench.analysis.wording import Number
from bench.core.by_key import by_key
from bench.core.formatting import flops_range, plural
from bench.core.measure import judged_on

SYMBOLS: dict[Tone, str] = {"yes": "✓", "no": "✗", "fact": "●", "unsure": "?"}
MAX_ROWS = 5  # rows in all of the tables that are seen before anything is unfolded
MAX_COLUMNS = 4  # number of subjects up to which they are columns of the table at a glance; more become rows
MAX_TOGETHER = 3  # number of subjects up to which equal answers share a row on the console


@dataclass(frozen=True, kw_only=True)
class Answer:
    """A finding as text.

    Attributes:
        key: id of its place in the page, which links point to.
        label: the question in a few words, for its row in tables.
        question: the question in full, for its heading.
        subject: the families or models that it is about.
        shown: the estimate with its interval, or the trend.
        verdict: the answer in words.
        tone: the kind of answer, which selects colour and symbol.
        text: explanation of the number, reasons and caveats, and n where it differs from the usual n.
        main: see `Finding.main`.
        is_pair: whether the subject is two families.
        at_a_glance: see `Question.at_a_glance`.
    """

    key: str
    label: str
    question: str
    subject: str
    shown: Number
    verdict: str
    tone: Tone
    text: str
    main: bool
    is_pair: bool
    at_a_glance: bool

    @property
    def symbol(self) -> str:
        return SYMBOLS[self.tone]

    @property
    def number(self) -> str:
        return self.shown.text


@dataclass(frozen=True, kw_only=True)
class Glance:
    """A table of answers. Each of its `rows` is (label, one answer per column); None where there is no answer."""

    heading: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, tuple[Answer | None, ...]], ...]

    @property
    def asked(self) -> tuple[str, ...]:
        """The questions that the table answers, in full and each once. If the table's rows are subjects, these are
        added in brackets."""
        answers = (answer for _, cells in self.rows for answer in cells if answer)
        questions = tuple(dict.fromkeys(answer.question for answer in answers))
        if self.heading != "Subject":
            return questions
        subjects = "; ".join(name for name, _ in self.rows)
        return tuple(f"{question} ({subjects})" for question in questions)


@dataclass(frozen=True, kw_only=True)
class Overview:
    """The tables of the main answers in three groups. Each row is in one of the groups.

    Attributes:
        shown: tables of the first `MAX_ROWS` rows that have a decided answer.
        more: tables of the other rows that have a decided answer.
        unanswered: tables of the rows without a decided answer.
    """

    shown: tuple[Glance, ...]
    more: tuple[Glance, ...]
    unanswered: tuple[Glance, ...]


def answers(findings: Findings) -> tuple[Answer, ...]:
    """Return every finding as text, in the order of the findings. If several answers to a question have the same
    subject, each subject is followed by what sets it apart, such as a number of images."""
    usual = usual_counts(findings)
    tasks = judged_on(findings.headline, findings.shots)
    made = [_answer(f, f"answer-{nth}", usual, tasks) for nth, f in enumerate(findings.findings, start=1)]
    named = Counter((a.label, a.subject) for a in made)
    more = [
        ", ".join(word for word in f.subject if word not in a.subject)
        for f, a in zip(findings.findings, made, strict=True)
    ]
    return tuple(
        replace(a, subject=f"{a.subject}, {also}") if also and named[a.label, a.subject] > 1 else a
        for a, also in zip(made, more, strict=True)
    )


def _answer(f: Finding, key: str, usual: Mapping[str, str], tasks: str) -> Answer:
    question = question_of(f)
    verdict, tone = verdict_of(f)
    measure, target = question.measure(f), question.target(f)
    texts = (*question.say(f), _basis(f, question, tasks), *reasons(f, question), _counted(f, usual))
    return Answer(
        key=key,
        subject=question.subject(f),
        shown=question.number(f),
        verdict=verdict,
        tone=tone,
        main=f.main,
        is_pair=question.about_two,
        at_a_glance=question.at_a_glance,
        label=question.label.format(target=target).removesuffix("?") + measure + "?",
        question=question.text.format(target=target).removesuffix("?") + measure + "?",
        text=" ".join(text for text in texts if text),
    )


def verdict_of(f: Finding) -> tuple[str, Tone]:
    """Return (a finding's verdict in the words of its question, its tone). The tone is the kind of answer, which
    selects colour and symbol."""
    question, yes = question_of(f), f.verdict == Verdict.YES
    if Reason.SEVERAL in f.reasons:
        return "inconclusive", "unsure"
    if f.verdict == Verdict.CANNOT_TELL:
        return question.verdict(f) or ("inconclusive", "unsure")
    word = (question.yes if yes else question.no).format(f.leader or "one")
    return question.verdict(f) or (word, question.tones[0 if yes else 1])


def _basis(f: Finding, question: Question, tasks: str) -> str:
    """Return a sentence on which tasks, and which range of compute, a verdict at equal compute is based on, as
    `vit-bench compare` words it; "" for questions that do not state this. `tasks`: the main tasks, in words."""
    if not question.states_basis or not f.trend:
        return ""
    return f"Judged on {tasks}, at {flops_range(f.trend[0].x, f.trend[-1].x)} of training."


def reasons(f: Finding, question: Question) -> list[str]:
    """Return the reasons of a finding as sentences, in the question's own words or in those that all questions
    share."""
    made = [question.reasons.get(reason, wording.REASONS.get(reason, f"{reason}.")) for reason in f.reasons]
    return [text if isinstance(text, str) else text(f) for text in made]


# -- tables of answers -----------------------------------------------------------------------------------------------


def overview(findings: Findings, said: Sequence[Answer]) -> Overview:
    """Return the main answers as tables. Each has a row per question and a column per subject or, if there are many
    subjects, a row per subject and a column per question. The `MAX_ROWS` rows to show first are the first decided row
    of each table, then the second of each, and so on. `said`: the texts of the findings, in the same order."""
    tables = _glances(findings, said)
    decided = [[row for row in table.rows if any(a and a.tone != "unsure" for a in row[1])] for table in tables]
    places = sorted((nth, number) for number, rows in enumerate(decided) for nth in range(len(rows)))[:MAX_ROWS]
    first = [sum(number == which for _, which in places) for number in range(len(tables))]
    split = [
        (rows[:count], rows[count:], [row for row in table.rows if row not in rows])
        for table, rows, count in zip(tables, decided, first, strict=True)
    ]
    kept = [
        tuple(_with(table, rows[nth]) for table, rows in zip(tables, split, strict=True) if rows[nth])
        for nth in range(3)
    ]
    return Overview(shown=kept[0], more=kept[1], unanswered=kept[2])


def _with(table: Glance, rows: Sequence[tuple[str, tuple[Answer | None, ...]]]) -> Glance:
    """Return the table with these rows only, without columns that are then empty."""
    filled = [any(answers) for answers in zip(*(cells for _, cells in rows), strict=True)]
    kept = tuple((label, tuple(compress(cells, filled))) for label, cells in rows)
    return replace(table, columns=tuple(compress(table.columns, filled)), rows=kept)


def _glances(findings: Findings, said: Sequence[Answer]) -> tuple[Glance, ...]:
    shown = [
        (f, a)
        for f, a in zip(findings.findings, said, strict=True)
        if a.main and a.at_a_glance and f.subject != (ALL_MODELS,)
    ]
    groups: list[list[tuple[frozenset[str], Answer]]] = []
    for f, a in shown:
        who = frozenset(f.subject)
        home = next((g for g in groups if any(who == w or a.label == b.label for w, b in g)), None)
        if home is None:
            groups.append(home := [])
        home.append((who, a))
    return tuple(_glance(group) for group in groups)


def _glance(group: Sequence[tuple[frozenset[str], Answer]]) -> Glance:
    names: dict[frozenset[str], str] = {}
    labels: dict[str, dict[frozenset[str], Answer]] = {}
    for who, a in group:
        names.setdefault(who, a.subject)
        labels.setdefault(a.label, {})[who] = a
    if len(labels) > 1 and len(names) <= MAX_COLUMNS:
        columns = sorted(names, key=_column)
        rows = tuple((label, tuple(by.get(who) for who in columns)) for label, by in labels.items())
        return Glance(heading="Question", columns=tuple(names[who] for who in columns), rows=rows)
    rows = tuple((name, tuple(by.get(who) for by in labels.values())) for who, name in names.items())
    return Glance(heading="Subject", columns=tuple(labels), rows=rows)


def _column(who: frozenset[str]) -> tuple[int, int]:
    """Return a sort key for the columns of a table, so that they have the same order in every report: by the first
    family in the usual order; among pairs with the same first family, the pair whose second family comes last. `who`:
    the families of a column."""
    ranks = sorted(family_rank(name)[0] for name in who)
    return ranks[0], -ranks[-1]


@dataclass(frozen=True, kw_only=True)
class ConsoleRow:
    """A row of the console's table: one answer, or several equal answers to one question.

    Attributes:
        label: the question; "" in a row that continues the question of the row above.
        subjects: the families or models that the answer is about.
        shown: the number with its interval, or the range of several numbers.
        verdict: symbol and answer.
        tone: the kind of answer, which selects the style.
    """

    label: str
    subjects: str
    shown: Number
    verdict: str
    tone: Tone


def console_rows(said: Sequence[Answer], *, limit: int) -> tuple[list[ConsoleRow], list[str]]:
    """Return (rows of the main answers for the console, labels of the questions that are left out). A question is left
    out if its rows would exceed `limit` rows in all. Equal answers share a row; questions without any decided answer
    come last."""
    glance = (a for a in said if a.main and a.at_a_glance and a.subject.lower() != ALL_MODELS)
    by_label = by_key((a.label, a) for a in glance)
    rows: list[ConsoleRow] = []
    left_out: list[str] = []
    certain = [label for label, asked in by_label.items() if any(a.tone != "unsure" for a in asked)]
    for label in (*certain, *(label for label in by_label if label not in certain)):
        made = _rows(label, by_label[label])
        if len(rows) + len(made) <= limit:
            rows += made
        else:
            left_out.append(label)
    return rows, left_out


def _rows(label: str, asked: Sequence[Answer]) -> list[ConsoleRow]:
    apart = len(asked) > MAX_TOGETHER
    together = by_key((a.key if apart or a.tone == "fact" or a.is_pair else a.verdict, a) for a in asked)
    everybody = len(together) == 1 and len(asked) > 1
    return [
        ConsoleRow(
            label="" if number else label,
            subjects="all" if everybody else ", ".join(a.subject for a in mine),
            shown=_together([a.shown for a in mine], certain=mine[0].tone != "unsure"),
            verdict=f"{mine[0].symbol} {mine[0].verdict}",
            tone=mine[0].tone,
        )
        for number, mine in enumerate(together.values())
    ]


def row_of(a: Answer) -> ConsoleRow:
    """Return one answer as a row of the console's table."""
    verdict = f"{a.symbol} {a.verdict}"
    return ConsoleRow(label=a.label, subjects=a.subject, shown=a.shown, verdict=verdict, tone=a.tone)


def _together(mine: Sequence[Number], *, certain: bool) -> Number:
    """Return the number to show for several equal answers: the range from the smallest to the largest estimate, or
    nothing if they are inconclusive (not `certain`) or have different units. A single answer keeps its number and
    interval."""
    if len(mine) == 1:
        return mine[0]
    known = sorted((n for n in mine if n.magnitude is not None), key=lambda n: n.magnitude or 0.0)
    if not known or not certain or len({n.unit for n in known}) > 1:
        return Number()
    text = f"{known[0].head} to {known[-1].head} {known[0].unit}".strip()
    return Number(text=text, short=text)


# -- how many --------------------------------------------------------------------------------------------------------


def usual_counts(findings: Findings) -> dict[str, str]:
    """Return measure -> the most frequent n of its findings, in words. A report states it once, and n elsewhere only
    where it differs."""
    counts_of: dict[str, Counter[str]] = {}
    for f in findings.findings:
        if text := counts(f.n):
            counts_of.setdefault(f.measure, Counter())[text] += 1
    return {measure: counted.most_common(1)[0][0] for measure, counted in counts_of.items()}


def counts(n: Counts) -> str:
    """Return sample sizes in words: "2 seeds × 5 few-shot samples, 2 tasks of at least 1,000 test images"."""
    runs = " × ".join(plural(k, noun) for k, noun in ((n.seeds, "seed"), (n.draws, "few-shot sample")) if k)
    tests = (f"{n.tasks} tasks of at least " if n.tasks > 1 else "") + f"{n.test_images:,} test images"
    return ", ".join(part for part in (runs, tests if n.test_images else "") if part)


def _counted(f: Finding, usual: Mapping[str, str]) -> str:
    text = counts(f.n)
    return f"n: {text}." if text and text != usual[f.measure] else ""
