"""Puts a finding into one sentence with its interval, and chooses the finding that is the title of a study."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from bench.analysis import wording
from bench.analysis.budgets import ONE_BUDGET
from bench.analysis.families import RESNET, VIT, family_of_kind
from bench.analysis.finding import ALL_MODELS, Axis, Finding, Reason, Unit
from bench.analysis.findings import Findings
from bench.analysis.question import question_of
from bench.core.formatting import join
from bench.core.phrase import phrase
from bench.report.text import verdict_of
from bench.validity.size_at_edge import SMALLEST

MAX_NAMED = 2  # subjects with another answer that a title names


@dataclass(frozen=True, kw_only=True)
class StudyTitle:
    """The title of a study.

    Attributes:
        text: the whole title: a sentence, followed by `others`.
        finding: index in `Findings.findings` of the finding that the sentence states.
        others: the answers for other subjects, and what qualifies the sentence; "" if there is nothing to add.
        figure: name of the figure that shows that finding; "" if none does.
        caption: the title as it is written into the figure's files. It leaves out what it would take to settle an
            inconclusive answer.
    """

    text: str
    finding: int
    others: str = ""
    figure: str = ""
    caption: str = ""


def title_of(findings: Findings, *, figures: Sequence[str], own: str = "") -> StudyTitle | None:
    """Choose the finding that is the title of a study, and return the title; None if no question was asked.

    The choice does not depend on the answers: if the first decided finding were chosen, a study without any difference
    would get its first false positive as the title. Main findings about families, models or settings are ranked by:
    whether they answer the suite's own question, whether the study's design allows an answer, whether they were asked
    for by name, whether a figure shows them, whether they are about ViT and ResNet, the order of figures, and the order
    of questions. The first in this ranking becomes the title, decided or not.

    Args:
        figures: names of the figures that are drawn, in the study's order.
        own: name of the question that the study was made for; "": the study was made for no particular question.
    """
    ranked: list[tuple[bool, bool, bool, bool, bool, int, int, int]] = []
    order = list(dict.fromkeys(f.question for f in findings.findings))
    for place, f in enumerate(findings.findings):
        question = question_of(f)
        if f.main and question.at_a_glance and f.subject != (ALL_MODELS,):
            showing = {*question.figures, *question.shown_in}
            shown = next((n for n, name in enumerate(figures) if name in showing), len(figures))
            others = any(family_of_kind(f.subject, kind) is None for kind in (VIT, RESNET))
            is_elsewhere = shown == len(figures)
            rank = (f.question != own, not can_be_answered(f), not question.leads(f), is_elsewhere, others)
            ranked.append((*rank, shown, order.index(f.question), place))
    if not ranked:
        return None
    *_, shown, _, place = min(ranked)
    chosen = findings.findings[place]
    figure = figures[shown] if shown < len(figures) else ""
    if whole := _together(chosen, findings):
        return StudyTitle(text=whole, finding=place, figure=figure, caption=whole)
    also = " ".join(filter(None, (_others(chosen, findings), _smallest(chosen, findings))))
    text, caption = (phrase(said, " " if also else "", also) for said in (sentence(chosen), statement(chosen)))
    return StudyTitle(text=text, finding=place, figure=figure, others=also, caption=caption)


def _alike(chosen: Finding, findings: Findings) -> list[Finding]:
    """Return all findings that answer the same question as the chosen one, on the same measure: one for each
    subject."""
    asked = (chosen.question, chosen.measure, chosen.main)
    return [f for f in findings.findings if (f.question, f.measure, f.main) == asked]


def _together(chosen: Finding, findings: Findings) -> str:
    """Return one sentence that sums up the answers for all subjects of the chosen finding's question; "" if there are
    few subjects, or if the question has no such sentence."""
    alike = _alike(chosen, findings)
    return question_of(chosen).together(alike) or "" if len(alike) > MAX_NAMED + 1 else ""


def _others(chosen: Finding, findings: Findings) -> str:
    """Return in words the answers for the other subjects of the chosen finding's question, if they differ; "" for a
    question about pairs of families. An answer differs if its verdict does or, for a question whose answer is a number,
    if its number does. Up to `MAX_NAMED` of them are named, and more are counted by verdict."""
    question, alike = question_of(chosen), _alike(chosen, findings)
    said = [(f, _word(f, chosen)) for f in alike if f is not chosen]
    others = [f"{question.subject(f)}: {word}" for f, word in said if word]
    if question.about_two or not others:
        return ""
    if len(others) <= MAX_NAMED:
        return f"{'; '.join(others)}."
    if all(f.verdict == chosen.verdict for f in alike):
        return ""
    tally = Counter(verdict_of(f)[0] for f in alike)
    return f"Of {len(alike)} answers: {', '.join(f'{number} {word}' for word, number in tally.most_common())}."


def _smallest(chosen: Finding, findings: Findings) -> str:
    """Return a sentence that qualifies the lead of one family over another: it names the families whose smallest
    network is their best even at the largest budget, so that a still smaller one may be better. "" if there is no such
    family, or if the finding has no answer."""
    if len(chosen.subject) != 2 or chosen.axis != Axis.COMPUTE or not chosen.trend or not is_answered(chosen):
        return ""
    last = chosen.trend[-1].x
    found = [c for c in findings.checks if c.kind == SMALLEST and (c.high or 0) * ONE_BUDGET >= last]
    named = [c.names[0] for c in found if c.names[0] in chosen.subject]
    if len(named) < 2:
        return f"But the smallest {named[0]} is best: a smaller one may be better." if named else ""
    return f"But the smallest {join(named)} are best: smaller ones may be better."


def _word(f: Finding, chosen: Finding) -> str:
    """Return the answer of a finding in words if it differs from the answer of the chosen finding; "" if it is the
    same."""
    (word, tone), number = verdict_of(f), question_of(f).number(f)
    if word != verdict_of(chosen)[0]:
        return word
    return f"{number.head} {number.unit}" if tone == "fact" and not f.leader else ""


def can_be_answered(f: Finding) -> bool:
    """Return whether the study's design allows an answer to the finding's question, whatever the scores."""
    return not set(f.reasons) & {Reason.NO_COMMON_RANGE, Reason.TOO_FEW_SCORES, Reason.TOO_FEW_POINTS}


def is_answered(f: Finding) -> bool:
    """Return whether a finding has an answer; one that changes along its range counts as an answer."""
    return verdict_of(f)[1] != "unsure"


def sentence(f: Finding) -> str:
    """Return a finding as one sentence. If it is inconclusive, a second sentence says what it would take to settle
    it."""
    condition = "" if is_answered(f) else takes(f)
    return phrase(statement(f), " " if condition else "", condition)


def statement(f: Finding) -> str:
    """Return a finding as one sentence, whether it is decided or not."""
    question = question_of(f)
    about = question.subject(f) + question.measure(f)
    if is_answered(f):
        if question.sentence is not None:
            return phrase(question.sentence(f), question.measure(f), ".")
        number = question.number(f).text
        said = f"{question.text.format(target=question.target(f))} {about}: {verdict_of(f)[0]}"
        return phrase(said, ", " if number else "", number, ".")
    if question.about_two and f.unit == Unit.SHARE and f.estimate is not None:
        label, number = question.label.format(target=question.target(f)), question.number(f).text
        span = f", {wording.between(f, f.trend[0].x, f.trend[-1].x, 'to')}" if len(f.trend) > 1 else ""
        return phrase(f"{label} Inconclusive: {' − '.join(f.subject)} ", number, f"{span}.")
    number = question.number(f).text
    shown = (" (", number, ")") if number else ()
    return phrase(f"{question.text.format(target=question.target(f))} Inconclusive for {about}", *shown, ".")


def takes(f: Finding) -> str:
    """Return in words what it would take to settle an inconclusive finding or, if that is not known, why it is
    inconclusive."""
    known = {**wording.TAKES, **question_of(f).reasons}
    words = next((known[reason] for reason in f.reasons if reason in known), "")
    return words if isinstance(words, str) else words(f)
