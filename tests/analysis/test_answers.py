"""Answers in words: the paper's Table 6 gives the paper's conclusions, studies with a known truth theirs."""

from __future__ import annotations

import numpy as np
import pytest

from bench.analysis import published
from bench.analysis.answers import Answer, answers, claims
from bench.analysis.answers.claims import CHEAPER, SHRINKING, TEXT, UNSATURATED
from bench.report import findings, fits
from tests.analysis._study import study

FAMILIES = ("ViT", "Hybrid", "ResNet")


def ask(found: list[Answer], start: str, subject: str | None = None) -> Answer:
    return next(a for a in found if a.question.startswith(start) and subject in (None, a.subject))


@pytest.fixture(scope="module")
def paper() -> list[Answer]:
    return answers(published.evidence())


def test_table_6_says_two_to_four_times_less_compute(paper: list[Answer]) -> None:
    """Section 4.4: "ViT uses approximately 2 - 4x less compute to attain the same performance"."""
    answer = ask(paper, "How much compute does one", "ViT and ResNet")
    assert answer.verdict == "yes" and answer.unit == "ResNet / ViT"
    assert answer.low is not None and answer.high is not None and answer.estimate is not None
    assert answer.low < 4 and answer.high > 2 and 2 <= round(answer.estimate, 0) <= 4


def test_table_6_says_hybrids_lead_and_lose_it(paper: list[Answer]) -> None:
    answer = ask(paper, "Does the hybrids' advantage shrink")
    assert answer.verdict == "yes" and answer.low is not None and answer.low > 0
    assert ask(paper, "How much compute does one", "ViT and Hybrid").unit == "ViT / Hybrid"


def test_table_6_says_vit_does_not_saturate(paper: list[Answer]) -> None:
    answer = ask(paper, "Has the family stopped", "ViT")
    assert answer.verdict == "no" and answer.low is not None and answer.low > 0


def test_claims_beside_their_verdicts() -> None:
    found = {c.claim: c for c in claims(published.evidence())}
    for name in (CHEAPER, SHRINKING, UNSATURATED):
        assert found[TEXT[name]].paper == "yes" == found[TEXT[name]].verdict, found[TEXT[name]]


def test_a_known_ratio_and_target_are_found() -> None:
    """Every family gains 8 points per decade; ResNet lags ViT by 4 points: half a decade, 3.16 times the compute."""
    level = {"ViT": 0.70, "Hybrid": 0.70, "ResNet": 0.66}
    world = study(seed=3, level=level, slope=dict.fromkeys(FAMILIES, 0.08), sizes=(30_000,))
    found = answers(world, accuracy=0.72)
    ratio = ask(found, "How much compute does one", "ViT and ResNet")
    assert ratio.verdict == "yes" and ratio.low is not None and ratio.high is not None
    assert ratio.low < 10**0.5 < ratio.high and ratio.high / ratio.low < 4
    target = ask(found, "How much compute is needed for 72.0 %", "ViT")
    assert target.estimate is not None and 10**11.5 < target.estimate < 10**12.5  # 3 points are lost or won to draws
    run = ask(found, "Which run should be done next", "ResNet's compute to match ViT")
    assert run.estimate is not None and 1e10 < run.estimate < 1e14


def test_flat_families_have_stopped_and_promise_nothing() -> None:
    flat = study(seed=4, level=dict.fromkeys(FAMILIES, 0.7), slope=dict.fromkeys(FAMILIES, 0.0), sizes=(30_000,))
    found = answers(flat)
    assert all(a.verdict == "cannot tell" for a in found if a.question.startswith("How much compute does one"))
    assert all(a.verdict != "no" for a in found if a.question.startswith("Has the largest"))


def test_cards_hold_both_intervals_and_the_search() -> None:
    found = fits.cards(published.evidence())
    assert [card["family"] for card in found] == ["ViT", "Hybrid", "ResNet"]
    for card in found:
        within, total = np.array(card["curve"]["within"]), np.array(card["curve"]["total"])
        assert (within[:, 0] < within[:, 1]).all() and (total[:, 0] < total[:, 1]).all()
        assert {"starts", "objective", "objective_at_start", "software", "dropped"} <= card["card"].keys()
        assert card["selection_bias"] >= 0 and any(card["curve"]["beyond"])


def test_too_few_points_say_so() -> None:
    few = study(seed=1, horizons=(0, 8_000), sizes=(30_000,))
    assert answers(few) == [] and findings.find(few).claims == ()
    assert any("a law needs 4" in reason for reason in fits.missing(few))
