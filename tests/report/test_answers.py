"""How answers are put into words: which share a row, which mark they carry, how their numbers read."""

from __future__ import annotations

import pytest

from bench.analysis import published, questions
from bench.analysis.finding import Axis, Check, CheckKind, CostSummary, Finding, Findings, TrendPoint, Verdict
from bench.core import formatting
from bench.report import caveats, text

NOTHING_SPENT = CostSummary(cells=0, seconds=(), total_seconds=0.0, spent_flops=0.0, spent_images=0, core_days=0.0)


@pytest.mark.parametrize(
    ("question", "subjects", "rows"),
    [
        ("more images help", [("ViT-pico/14",), ("ViT-nano/7",)], 1),
        ("more images help", [("R8x0.125-s2",), ("R11x0.25-s2",)], 1),
        ("hybrid advantage shrinks", [("R5+ViT-pico/14", "ViT-pico/14"), ("R5+ViT-nano/14", "ViT-nano/14")], 2),
    ],
)
def test_a_model_with_a_slash_is_no_pair(question: str, subjects: list[tuple[str, ...]], rows: int) -> None:
    """Findings about single models share a row, whatever their names; those about two families never do."""
    asked = [Finding(question=question, subject=subject, verdict=Verdict.YES) for subject in subjects]
    made = text.answers(Findings(findings=tuple(asked), checks=(), cost=NOTHING_SPENT, scope=None))
    shown, _ = text.console_rows(made, limit=9)
    assert len(shown) == rows


@pytest.mark.parametrize(
    ("verdict", "trend", "said"),
    [
        (Verdict.YES, "y?yy?", "● ViT ahead"),  # of the mean: the paper's Table 6
        (Verdict.CANNOT_TELL, "y?yy?", "? cannot tell"),
        (Verdict.YES, "???", "● ViT ahead"),
        (Verdict.CANNOT_TELL, "???", "? cannot tell"),
        (Verdict.CANNOT_TELL, "nn?", "● ResNet, then even"),
    ],
)
def test_a_leader_that_changes_is_decided_or_not(verdict: Verdict, trend: str, said: str) -> None:
    verdicts = {"y": Verdict.YES, "n": Verdict.NO, "?": Verdict.CANNOT_TELL}
    found = Finding(
        question="best family at equal compute",
        subject=("ViT", "ResNet"),
        verdict=verdict,
        leader="ViT" if verdict is Verdict.YES else "",
        axis=Axis.COMPUTE,
        trend=tuple(TrendPoint(x=10.0**n, estimate=0.01, verdict=verdicts[v]) for n, v in enumerate(trend, start=9)),
    )
    (a,) = text.answers(Findings(findings=(found,), checks=(), cost=NOTHING_SPENT, scope=None))
    assert f"{a.symbol} {a.verdict}" == said


def test_nothing_published_is_undecided_with_the_mark_of_a_fact() -> None:
    answers = text.answers(questions.find(published.figures()["compute"]))
    assert not [a for a in answers if a.verdict == "cannot tell" and a.symbol != "?"]


@pytest.mark.parametrize("most", [386.667, 1906.67, 10_114.5, 3_000_000.0])
def test_a_note_counts_in_plain_digits(most: float) -> None:
    said = caveats.check(Check(kind=CheckKind.REPEATED_DATA, names=("images",), count=8, limit=4.0, high=most))
    assert "e+" not in said and f"up to {formatting.significant(most)})" in said
    assert caveats.check(Check(kind=CheckKind.FEW_IMAGES, names=("mnist",), count=8, limit=4.0, high=10.0))
