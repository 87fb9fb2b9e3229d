"""Every finding says itself as one sentence with its interval; a study is titled by rule with one of them."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from bench.analysis import published, questions, saved_findings
from bench.analysis.finding import ALL_MODELS, Counts, Finding, Reason, Unit, Verdict
from bench.analysis.findings import Findings
from bench.report.headline import headline, is_answered, sentence
from tests.conftest import PROJECT

REFERENCES = sorted(path.parent for path in PROJECT.glob("results/reference/*-cpu/findings.json"))


def study(*found: Finding) -> Findings:
    return Findings(findings=found, checks=(), cost=questions.cost(()), scope=None)


def gain(name: str, family: str, estimate: float, half: float, *reasons: str, **more: object) -> Finding:
    low, high = estimate - half, estimate + half
    verdict = Verdict.YES if low > 0 else Verdict.NO if high < 0 else Verdict.CANNOT_TELL
    found = Finding(question=name, subject=(family,), verdict=verdict, estimate=estimate, low=low, high=high)
    return replace(found, unit=Unit.SHARE, n=Counts(seeds=2), reasons=reasons, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("folder", REFERENCES, ids=lambda folder: folder.name)
def test_every_finding_of_the_references_says_itself(folder, race) -> None:
    for finding in saved_findings.read(folder):
        said = sentence(finding)
        assert said.strip() == said and said.endswith(".") and not re.search(r"\b(None|nan)\b|  |\.\.", said), said
        assert all(name in said for name in _named(finding)), said


def _named(finding: Finding) -> tuple[str, ...]:
    """Names that a sentence about a finding has: its subject, where that is a family, a model or a pair of them."""
    as_words = ("as published", "branch as accurate", "resolution gain", "faster than peers", "next run")
    return () if finding.question in as_words or finding.subject == (ALL_MODELS,) else finding.subject[:1]


def test_answers_come_first_then_those_that_a_figure_shows_then_the_order_of_figures() -> None:
    open_one = gain("more compute helps", "ViT", 0.02, 0.05, Reason.WITHIN_INTERVAL)
    compute, images = gain("more compute helps", "ResNet", 0.05, 0.01), gain("more images help", "ResNet", 0.04, 0.01)
    aside = gain("more images help", "Hybrid", 0.3, 0.01, main=False)
    made = headline(study(open_one, compute, images, aside), figures=["frontier"])
    assert made is not None and (made.finding, made.figure) == (1, "")
    assert made.text.startswith("Longer training gives ResNet 5.0 points [4.0, 6.0].") and "1 of 2" in made.text
    made = headline(study(open_one, compute, images, aside), figures=["compute", "data-size"])
    assert made is not None and (made.finding, made.figure) == (1, "compute")
    made = headline(study(open_one, compute, images, aside), figures=["data-size", "compute"])
    assert made is not None and (made.finding, made.figure) == (2, "data-size")
    assert made.text == "More images give ResNet 4.0 points [3.0, 5.0]."


def test_a_loss_is_a_loss() -> None:
    assert sentence(gain("more images help", "ViT", -0.02, 0.01)) == "More images cost ViT 2.0 points [1.0, 3.0]."


def test_an_open_question_says_what_it_would_take() -> None:
    open_one = gain("more compute helps", "ViT", 0.02, 0.05, Reason.WITHIN_INTERVAL)
    made = headline(study(open_one), figures=["compute"])
    assert made is not None and "Open for ViT" in made.text and "2.5 times narrower" in made.text
    once = gain("more compute helps", "ViT", 0.02, 0.05, Reason.UNREPLICATED)
    assert "--seeds 2" in sentence(once)


def test_nothing_asked_is_no_headline() -> None:
    assert headline(study(), figures=[]) is None
    everybody = replace(gain("more compute helps", "ViT", 0.2, 0.05), subject=(ALL_MODELS,))
    assert headline(study(everybody), figures=[]) is None


def test_the_papers_own_table_is_titled_with_its_families() -> None:
    made = headline(questions.find(published.evidence()), figures=["compute"])
    assert made is not None and made.figure and made.text.startswith("ViT leads ResNet by ")


def test_a_difference_that_changes_is_an_answer(race) -> None:
    for folder in REFERENCES:
        for finding in saved_findings.read(folder):
            if finding.question == "best family at equal compute" and finding.estimate is None and finding.trend:
                assert is_answered(finding) == (" leads " in sentence(finding))
