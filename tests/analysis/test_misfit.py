"""A law that misses its own marks says so, and nothing that the marks contradict is read off it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from bench.analysis.answers import Answer, answers
from bench.analysis.evidence import Evidence
from bench.report import findings, fits
from bench.report.figures import laws as figure
from bench.stats.lack_of_fit import GroupMeans, lack_of_fit
from tests.analysis._study import study


def test_the_test_of_fit_errs_as_often_as_it_says() -> None:
    """Marks about a known law, noise known from 8 degrees of freedom: p is uniform; a bent truth is found."""
    rng, x = np.random.default_rng(0), np.geomspace(1.0, 100.0, 9)
    line, bent = 0.5 * x**-0.2, 0.5 * x**-0.2 * np.where(x > 30, 0.7, 1.0)
    found: dict[str, list[float]] = {"line": [], "bent": []}
    for name, truth in (("line", line), ("bent", bent)):
        for _ in range(400):
            noise = np.full(9, 0.01 * np.sqrt(rng.chisquare(8) / 8))
            marks = GroupMeans(x=x, error=truth + rng.normal(0, 0.01, 9), noise=noise, freedom=8)
            slope, level = np.polyfit(np.log(x), np.log(marks.error), 1)
            made = lack_of_fit(marks, np.exp(level) * x**slope, parameters=2)
            assert made is not None
            found[name].append(made.p)
    assert 0.02 < np.mean(np.array(found["line"]) < 0.05) < 0.09
    assert np.mean(np.array(found["bent"]) < 0.05) > 0.9


def test_without_repeats_nothing_is_tested() -> None:
    marks = GroupMeans(x=np.ones(5), error=np.full(5, 0.3), noise=np.full(5, 0.01), freedom=0)
    assert lack_of_fit(marks, np.full(5, 0.6), parameters=2) is None


def _truth(family: str, flops: float, num_images: int, task: str) -> float:
    """ViT stops at 300 GFLOPs. ResNet learns late: nothing below 200 GFLOPs, then quickly. More than 3,000 distinct
    images hurt."""
    log = np.log10(flops / 1e11)
    value = 0.5 + 0.15 * min(log, np.log10(3.0)) if family == "ViT" else 0.35 + 0.33 * max(0.0, log - 0.3)
    value = 0.4 + 0.1 * log if family == "Hybrid" else value
    return float(np.clip(value - 0.08 * abs(np.log10(num_images / 3_000)), 0.02, 0.97))


@pytest.fixture(scope="module")
def bent() -> Evidence:
    changes: dict[str, Any] = {"accuracy": _truth, "num_images": 10_000, "sizes": (300, 1_000, 3_000, 10_000)}
    return study(seed=2, shots=(10,), horizons=(0, 4_000, 8_000, 24_000, 72_000), seed_sd=0.004, **changes)


def ask(evidence: Evidence, start: str, subject: str) -> Answer:
    return next(a for a in answers(evidence) if a.question.startswith(start) and a.subject == subject)


def test_a_flat_end_is_not_still_improving(bent: Evidence) -> None:
    answer = ask(bent, "Has the family stopped", "ViT")
    assert answer.verdict != "no" and "did better" in answer.sentence
    assert ask(bent, "Has the family stopped", "ResNet").verdict == "no"


def test_what_the_marks_contradict_is_not_read_off_the_law(bent: Evidence) -> None:
    needed = ask(bent, "How much compute is needed", "ResNet")
    assert needed.verdict == "cannot tell" and "misses its own marks" in needed.sentence
    assert "The marks reach it" in needed.sentence


def test_one_factor_for_curves_of_different_shape_is_refused(bent: Evidence) -> None:
    answer = ask(bent, "How much compute does one family", "ViT and ResNet")
    assert answer.verdict == "cannot tell" and "from mark to mark" in answer.sentence, answer.sentence


def test_card_and_caption_say_that_the_law_misses(bent: Evidence) -> None:
    card = next(c for c in fits.cards(bent) if (c["family"], c["axis"]) == ("ResNet", "compute"))
    assert card["lack_of_fit"]["p"] < 0.001 and any("misses a group mean" in text for text in card["warnings"])
    caption = figure.draw(bent).caption
    assert "Lines that miss their points" in caption
    assert f"ResNet against compute by up to {card['lack_of_fit']['worst']:.0%}" in caption


def test_a_better_middle_and_unequal_compute_are_said(bent: Evidence) -> None:
    found = findings.find(bent).findings
    more = next(f for f in found if f.question.startswith("Do more distinct") and f.subject == "ViT" and f.main)
    assert "did best in between" in more.answer and "with 3,000 images" in more.answer
    images = next(f for f in found if f.question.startswith("At how many images"))
    assert "Not at equal compute: ViT" in images.answer and "images seen; ResNet" in images.answer
