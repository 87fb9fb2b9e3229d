"""A finding as one sentence with its interval, and the one that a study is titled with."""

from __future__ import annotations

from dataclasses import dataclass

from bench.analysis import wording
from bench.analysis.finding import ALL_MODELS, Finding, Verdict
from bench.analysis.findings import Findings
from bench.analysis.frontiers import family_of_kind
from bench.analysis.question import question_of


@dataclass(frozen=True, kw_only=True)
class Headline:
    """The title of a study.

    Attributes:
        text: one sentence.
        finding: place in `Findings.findings`; None where no question was answered or left open.
        titles_figure: whether the study's main figure shows it.
    """

    text: str
    finding: int | None = None
    titles_figure: bool = False


def headline(findings: Findings, *, figure: str) -> Headline | None:
    """The finding that a study is titled with; None where nothing was asked.

    Main findings about families, models or settings are ranked by: whether they are answered, whether the study's main
    figure shows them, the order of questions, and whether they are about ViT and ResNet. The first titles the study.

    Args:
        figure: name of the main figure; "" without one.
    """
    ranked: list[tuple[bool, bool, int, bool, int]] = []
    order = list(dict.fromkeys(f.question for f in findings.findings))
    for place, f in enumerate(findings.findings):
        question = question_of(f)
        if f.main and question.at_a_glance and f.subject != (ALL_MODELS,):
            is_shown = figure in (*question.figures, *question.shown_in)
            others = any(family_of_kind(f.subject, kind) is None for kind in ("vit", "resnet"))
            ranked.append((not is_answered(f), not is_shown, order.index(f.question), others, place))
    if not ranked:
        return None
    _, is_elsewhere, *_, place = min(ranked)
    chosen = findings.findings[place]
    text = f"{sentence(chosen)}{_alike(chosen, findings)}"
    return Headline(text=text, finding=place, titles_figure=not is_elsewhere)


def _alike(chosen: Finding, findings: Findings) -> str:
    """How many answers to a question about single subjects have the verdict of the chosen one; "" where all have."""
    asked = chosen.question, chosen.measure, chosen.main
    answers = [f.verdict for f in findings.findings if (f.question, f.measure, f.main) == asked]
    alike = answers.count(chosen.verdict)
    if question_of(chosen).about_two or alike == len(answers):
        return ""
    return f" {alike} of {len(answers)} answers to this question are alike."


def is_answered(f: Finding) -> bool:
    """Whether a finding has an answer, one that changes along its range included."""
    return f.verdict != Verdict.CANNOT_TELL or question_of(f).verdict(f) is not None


def sentence(f: Finding) -> str:
    """A finding as one sentence; an open one says what it would take to answer it."""
    question = question_of(f)
    about = question.subject(f) + question.measure(f)
    if is_answered(f):
        if question.sentence is not None:
            return f"{question.sentence(f)}{question.measure(f)}."
        verdict = question.verdict(f) or ((question.yes if f.verdict == Verdict.YES else question.no),)
        parts = (f"{about}: {verdict[0].format(f.leader or 'one')}", question.number(f).text)
        return f"{question.text.format(target=question.target(f))} {', '.join(part for part in parts if part)}."
    number = f" ({question.number(f).text})" if question.number(f).text else ""
    return f"{question.text.format(target=question.target(f))} Open for {about}{number}. {takes(f)}"


def takes(f: Finding) -> str:
    """The conditions under which an open question could be answered, or why it is open where they are not known."""
    known = {**wording.TAKES, **question_of(f).reasons}
    words = next((known[reason] for reason in f.reasons if reason in known), "")
    return words if isinstance(words, str) else words(f)
