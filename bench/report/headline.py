"""A finding as one sentence with its interval, and the one that a study is titled with."""

from __future__ import annotations

from collections.abc import Sequence
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
        text: one sentence, and for how many subjects its question has another answer.
        finding: place in `Findings.findings`.
        figure: name of the figure that shows it; "" where none does.
    """

    text: str
    finding: int
    figure: str = ""


def headline(findings: Findings, *, figures: Sequence[str]) -> Headline | None:
    """The finding that a study is titled with; None where nothing was asked.

    Main findings about families, models or settings are ranked by: whether they are answered, whether a figure shows
    them, whether they are about ViT and ResNet, the order of figures, and the order of questions. The first titles the
    study.

    Args:
        figures: names of those that are drawn, in the study's order.
    """
    ranked: list[tuple[bool, bool, bool, int, int, int]] = []
    order = list(dict.fromkeys(f.question for f in findings.findings))
    for place, f in enumerate(findings.findings):
        question = question_of(f)
        if f.main and question.at_a_glance and f.subject != (ALL_MODELS,):
            own = {*question.figures, *question.shown_in}
            shown = next((n for n, name in enumerate(figures) if name in own), len(figures))
            others = any(family_of_kind(f.subject, kind) is None for kind in ("vit", "resnet"))
            is_elsewhere = shown == len(figures)
            ranked.append((not is_answered(f), is_elsewhere, others, shown, order.index(f.question), place))
    if not ranked:
        return None
    *_, shown, _, place = min(ranked)
    chosen = findings.findings[place]
    figure = figures[shown] if shown < len(figures) else ""
    return Headline(text=f"{sentence(chosen)}{_others(chosen, findings)}", finding=place, figure=figure)


def _others(chosen: Finding, findings: Findings) -> str:
    """For how many subjects a question about single ones has another verdict than for the chosen one; "" for none."""
    asked = chosen.question, chosen.measure, chosen.main
    answers = [f.verdict for f in findings.findings if (f.question, f.measure, f.main) == asked]
    others = len(answers) - answers.count(chosen.verdict)
    if question_of(chosen).about_two or not others:
        return ""
    return f" For {others} of {len(answers)} the answer is another."


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
