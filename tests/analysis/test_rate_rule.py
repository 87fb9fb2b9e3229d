"""A rule for learning rates is offered where sizes that it has not seen confirm it, and nowhere else."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bench.analysis import evidence, lr_sweep, study_data
from bench.core.record import Operations
from bench.questions.best_learning_rate import rate_rule, rules
from tests.analysis._records import change
from tests.analysis._study import read, swept

RATES = [1e-3 * 2.0**step for step in range(-2, 8)]
REFERENCE = Path(__file__).resolve().parents[2] / "results/reference/rates-cpu"


def family(best: dict[float, float], *, flat: float = 0.1) -> list:
    """Sweeps of sizes (MACs -> their best rate): accuracy falls by `flat` for every factor of two from it."""
    made = []
    for number, (macs, peak) in enumerate(best.items()):
        accuracies = {rate: 0.9 - flat * abs(np.log2(rate / peak)) for rate in RATES}
        for record in swept({rate: max(0.01, value) for rate, value in accuracies.items()}):
            made.append(
                change(
                    record,
                    {
                        "directory": f"size{number}-{record.directory}",
                        "cell.model": f"size-{number}",
                        "model.name": f"size-{number}",
                        "model.forward_macs": Operations(dense=macs, paper=macs),
                    },
                )
            )
    return made


def test_rates_that_fall_by_a_power_are_found_and_offered():
    """rate = 0.032 × (MACs / 1 M) ** -1/2, on six sizes a factor of four apart."""
    best = {1e6 * 4.0**n: 0.032 / 2**n for n in range(6)}
    (rule,) = rules(read(family(best)))
    assert rule.exponent == pytest.approx(-0.5) and rule.scale == pytest.approx(0.032 * 1e6**0.5)
    assert [each.model for each in rule.held_out] == ["size-2", "size-3", "size-4", "size-5"]
    assert all(each.predicted == pytest.approx(each.chosen) and each.right for each in rule.held_out)
    assert rule.offered and rule.p_value == pytest.approx(0.1**4)
    exponent, scale = np.polyfit(np.log(list(best)), np.log(list(best.values())), 1)
    assert (rule.exponent, np.log(rule.scale)) == pytest.approx((exponent, scale))
    assert "for the next size" in rate_rule(read(family(best))).note


def test_one_size_that_it_misses_refuses_it():
    best = {1e6 * 4.0**n: 0.032 / 2**n for n in range(6)} | {1e6 * 4.0**4: 0.008}
    (rule,) = rules(read(family(best)))
    missed = {each.model: each.lacks for each in rule.held_out if not each.right}
    assert "size-4" in missed and missed["size-4"] == pytest.approx(0.2) and not rule.offered


def test_few_hits_or_rates_that_are_all_alike_prove_nothing():
    (few,) = rules(read(family({1e6: 8e-3, 4e6: 8e-3, 16e6: 8e-3})))
    assert [each.right for each in few.held_out] == [True] and not few.offered and few.p_value > 0.05
    (alike,) = rules(read(family({1e6 * 4.0**n: 8e-3 for n in range(5)}, flat=0.001)))
    assert all(each.right for each in alike.held_out) and alike.p_value == 1.0 and not alike.offered
    assert rules(read(family({1e6: 8e-3, 4e6: 8e-3}))) == ()


def test_on_the_committed_sweeps_none_is_offered():
    found = {rule.family: rule for rule in rules(evidence.build(study_data.load(REFERENCE, suite="rates")))}
    assert found.keys() == {"ViT", "Hybrid", "ResNet"} and not any(rule.offered for rule in found.values())
    assert {each.model: each.right for each in found["ViT"].held_out} == {"ViT-pico/7": True, "ViT-micro/14": False}
    note = rate_rule(lr_sweep.without_rejected(evidence.build(study_data.load(REFERENCE, suite="rates")))).note
    assert "right on 1 of 2 sizes" in note and "too few sizes" in note
