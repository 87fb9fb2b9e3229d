"""Findings say "yes" where the truth is yes, and "cannot tell" where noise hides it."""

from __future__ import annotations

import pytest

from bench.analysis import findings
from bench.analysis.evidence import Evidence
from bench.analysis.findings import AHEAD, Finding
from tests.analysis._study import study


def ask(evidence: Evidence, start: str, subject: str | None = None) -> Finding:
    found = [f for f in findings.find(evidence).findings if f.question.startswith(start)]
    return next(f for f in found if subject is None or f.subject == subject)


@pytest.mark.parametrize("family", ["ViT", "Hybrid", "ResNet"])
def test_clear_effects_are_found(evidence: Evidence, family: str) -> None:
    assert ask(evidence, "Do trained networks beat untrained", family).verdict == "yes"
    assert ask(evidence, "Do trained networks beat raw pixels on the headline", family).verdict == "yes"
    assert ask(evidence, "Does more compute help on the headline", family).verdict == "yes"
    assert ask(evidence, "Do more distinct pre-training images help on the headline", family).verdict == "yes"


def test_the_far_task_is_lost_to_raw_pixels(evidence: Evidence) -> None:
    assert ask(evidence, "Do trained networks beat raw pixels on the far", "ViT").verdict == "no"


def test_no_effect_is_not_claimed() -> None:
    """Flat in compute and data, equal families: over twenty studies, hardly any false claim."""
    false, asked = 0, 0
    for seed in range(20):
        flat = study(
            seed=seed, level=dict.fromkeys(("ViT", "Hybrid", "ResNet"), 0.7), data_slope=0.0,
            slope=dict.fromkeys(("ViT", "Hybrid", "ResNet"), 0.0), sizes=(300, 30_000), horizons=(0, 8_000, 72_000),
        )  # fmt: skip
        for finding in findings.find(flat).findings:
            if finding.main and any(word in finding.question for word in ("ahead", "more", "overtake")):
                asked += 1
                false += finding.verdict != "cannot tell"
    assert asked >= 200 and false / asked <= 0.05


def test_overlapping_noise_cannot_tell() -> None:
    noisy = study(seed=5, seed_sd=0.06, slope={"ViT": 0.01, "Hybrid": 0.01, "ResNet": 0.01}, data_slope=0.005,
                  level={"ViT": 0.70, "Hybrid": 0.70, "ResNet": 0.70})  # fmt: skip
    assert ask(noisy, "Do more distinct pre-training images help on the headline", "ViT").verdict == "cannot tell"
    assert ask(noisy, AHEAD, "ViT or ResNet").verdict == "cannot tell"


def test_the_family_ahead_is_named_with_its_interval(evidence: Evidence) -> None:
    finding = ask(evidence, AHEAD, "ViT or ResNet")
    assert finding.verdict == "yes" and finding.answer.startswith("ResNet is ahead of ViT: +")
    assert len(finding.evidence) == 5 and all(row["low"] < row["difference"] < row["high"] for row in finding.evidence)


def test_no_crossing_is_promised(evidence: Evidence) -> None:
    finding = ask(evidence, "Does ViT overtake ResNet as compute grows")
    assert finding.verdict == "cannot tell" and "lies beyond" in finding.answer


def test_a_clear_crossing_is_found_and_bracketed() -> None:
    crossing = study(
        seed=2, level={"ViT": 0.65, "Hybrid": 0.65, "ResNet": 0.65}, slope={"ViT": 0.16, "Hybrid": 0.1, "ResNet": 0.02}
    )
    finding = ask(crossing, "Does ViT overtake ResNet as compute grows")
    assert finding.verdict == "yes", finding.answer
    sides = [row["verdict"] for row in finding.evidence]
    assert sides[0] == "yes" and sides[-1] == "no"  # ResNet ahead, then ViT; the truth is at 1 TFLOP
    decided = [row for row in finding.evidence if row["verdict"] != "cannot tell"]
    last_resnet = max(row["x"] for row in decided if row["verdict"] == "yes")
    first_vit = min(row["x"] for row in decided if row["verdict"] == "no")
    assert last_resnet < 1e12 < first_vit
    assert ask(crossing, AHEAD, "ViT or ResNet").verdict == "cannot tell"


def test_one_seed_says_so_and_claims_no_small_difference() -> None:
    single = study(seed=4, seeds=(0,), level={"ViT": 0.70, "Hybrid": 0.70, "ResNet": 0.72}, draw_sd=0.001,
                   slope=dict.fromkeys(("ViT", "Hybrid", "ResNet"), 0.05))  # fmt: skip
    finding = ask(single, AHEAD, "ViT or ResNet")
    assert finding.verdict == "cannot tell"
    assert "no interval below contains training noise" in "\n".join(findings.find(single).lines())
    assert any("one seed" in limit for limit in findings.find(single).limits)


def test_untrained_better_than_trained_is_a_no() -> None:
    level, slope = {"ViT": 0.30, "Hybrid": 0.68, "ResNet": 0.7}, {"ViT": 0.0, "Hybrid": 0.07, "ResNet": 0.06}
    worse = study(seed=6, level=level, slope=slope)
    assert ask(worse, "Do trained networks beat untrained ones on the headline", "ViT").verdict == "no"


def test_console_lines_answer_and_admit(evidence: Evidence) -> None:
    text = "\n".join(findings.find(evidence).lines())
    for part in ("What this study cannot tell", "Cost", "core-days", "says by how much", "2 seeds × 3 draws"):
        assert part in text
