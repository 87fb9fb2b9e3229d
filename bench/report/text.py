"""Answers: findings in the words of their questions, and the tables that they are shown in."""

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
        key: its anchor in the page.
        label, question: labels of its row and of its heading.
        subject: families or models compared.
        shown: the estimate with its interval, or the trend.
        verdict, tone: the answer, and the tone that selects its symbol.
        text: explanation of the number, reasons and caveats, and n where it differs from the usual one.
        main: see `Finding`.
        is_pair: whether the subject is two families.
        at_a_glance: see `Question`.
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
    """A table of answers: `rows` of (label, one answer or None per column)."""

    heading: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, tuple[Answer | None, ...]], ...]

    @property
    def asked(self) -> tuple[str, ...]:
        """The table's questions in words, each once; with the subjects, where these are its rows."""
        answers = (answer for _, cells in self.rows for answer in cells if answer)
        questions = tuple(dict.fromkeys(answer.question for answer in answers))
        if self.heading != "Subject":
            return questions
        subjects = "; ".join(name for name, _ in self.rows)
        return tuple(f"{question} ({subjects})" for question in questions)


@dataclass(frozen=True, kw_only=True)
class Overview:
    """Tables of the main answers. Each row is in one of the three groups of tables.

    Attributes:
        shown: the first `MAX_ROWS` rows with a decided answer.
        more: the other rows with a decided answer.
        unanswered: rows without a decided answer.
    """

    shown: tuple[Glance, ...]
    more: tuple[Glance, ...]
    unanswered: tuple[Glance, ...]


def answers(findings: Findings) -> tuple[Answer, ...]:
    """Return every finding as text, in order. Where a question has several findings with the same subject, their
    subjects name what else they are about: the number of images, for a sweep on parts of a data set."""
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
    """Return a finding's verdict in the words of its question, and its tone."""
    question, yes = question_of(f), f.verdict == Verdict.YES
    if Reason.SEVERAL in f.reasons:
        return "inconclusive", "unsure"
    if f.verdict == Verdict.CANNOT_TELL:
        return question.verdict(f) or ("inconclusive", "unsure")
    word = (question.yes if yes else question.no).format(f.leader or "one")
    return question.verdict(f) or (word, question.tones[0 if yes else 1])


def _basis(f: Finding, question: Question, tasks: str) -> str:
    """Return a sentence on what a verdict at equal compute is based on, worded as `vit-bench compare` does; "" for
    others."""
    if not question.states_basis or not f.trend:
        return ""
    return f"Judged on {tasks}, at {flops_range(f.trend[0].x, f.trend[-1].x)} of training."


def reasons(f: Finding, question: Question) -> list[str]:
    """Return the reasons of a finding, in the question's words or in those that questions share."""
    made = [question.reasons.get(reason, wording.REASONS.get(reason, f"{reason}.")) for reason in f.reasons]
    return [text if isinstance(text, str) else text(f) for text in made]


# -- tables of answers -----------------------------------------------------------------------------------------------


def overview(findings: Findings, said: Sequence[Answer]) -> Overview:
    """Return the main answers as tables: a row per question and a column per subject; with many subjects, a row per
    subject. The rows that are shown first are taken from the tables in turn."""
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
    """Return a table with only these rows, and only the columns in which they have an answer."""
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
    """Return a sort key of columns, which orders them alike in every report: by the first family; among pairs, the
    families widest apart come first."""
    ranks = sorted(family_rank(name)[0] for name in who)
    return ranks[0], -ranks[-1]


@dataclass(frozen=True, kw_only=True)
class ConsoleRow:
    """A row on the console: equal answers to one question. `label`: the question; "" in rows that continue the question
    above."""

    label: str
    subjects: str
    shown: Number
    verdict: str
    tone: Tone


def console_rows(said: Sequence[Answer], *, limit: int) -> tuple[list[ConsoleRow], list[str]]:
    """Return at most `limit` rows of the main answers for the console, with equal verdicts grouped, and the labels of
    the questions left out. Questions without any decided answer come last."""
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
    """Return one answer as a row of its own."""
    verdict = f"{a.symbol} {a.verdict}"
    return ConsoleRow(label=a.label, subjects=a.subject, shown=a.shown, verdict=verdict, tone=a.tone)


def _together(mine: Sequence[Number], *, certain: bool) -> Number:
    """Return the number to show for equal answers: for one, its number with the interval; for several, the smallest and
    the largest estimate."""
    if len(mine) == 1:
        return mine[0]
    known = sorted((n for n in mine if n.magnitude is not None), key=lambda n: n.magnitude or 0.0)
    if not known or not certain or len({n.unit for n in known}) > 1:
        return Number()
    text = f"{known[0].head} to {known[-1].head} {known[0].unit}".strip()
    return Number(text=text, short=text)


# -- how many --------------------------------------------------------------------------------------------------------


def usual_counts(findings: Findings) -> dict[str, str]:
    """Return measure -> the n of most of its findings, which is stated once."""
    counts_of: dict[str, Counter[str]] = {}
    for f in findings.findings:
        if text := counts(f.n):
            counts_of.setdefault(f.measure, Counter())[text] += 1
    return {measure: counted.most_common(1)[0][0] for measure, counted in counts_of.items()}


def counts(n: Counts) -> str:
    """Return n in words: "2 seeds × 5 few-shot samples, 2 tasks of at least 1,000 test images"."""
    runs = " × ".join(plural(k, noun) for k, noun in ((n.seeds, "seed"), (n.draws, "few-shot sample")) if k)
    tests = (f"{n.tasks} tasks of at least " if n.tasks > 1 else "") + f"{n.test_images:,} test images"
    return ", ".join(part for part in (runs, tests if n.test_images else "") if part)


def _counted(f: Finding, usual: Mapping[str, str]) -> str:
    text = counts(f.n)
    return f"n: {text}." if text and text != usual[f.measure] else ""
