"""Families at equal error: against power laws with a known ratio, and what was found in the same tables before."""

import numpy as np
import pytest

from bench.analysis import matched
from bench.analysis.matched import comparisons, estimate, ratios

BY_NAME = {comparison.name: comparison for comparison in comparisons()}
COSTS = np.array([10.0, 40.0, 90.0, 400.0, 1000.0])


def law(compute, factor=1.0):
    return 30 * (np.asarray(compute) / factor) ** -0.15


def test_two_power_laws_have_the_ratio_of_their_compute():
    points = np.array([20.0, 100.0, 300.0])
    measured = ratios(points, law(points), 2.5 * COSTS, law(2.5 * COSTS, factor=2.5), extend=False)
    assert measured == pytest.approx([2.5, 2.5, 2.5])


def test_the_line_is_not_continued_unless_asked():
    points = np.array([1.0, 100.0, 5000.0])
    assert np.isnan(ratios(points, law(points), COSTS, law(COSTS), extend=False)).tolist() == [True, False, True]
    assert ratios(points, law(points), COSTS, law(COSTS), extend=True) == pytest.approx([1, 1, 1])


def test_a_network_that_another_beats_at_less_compute_is_not_on_the_line():
    points = np.array([50.0, 200.0])
    errors = np.append(law(COSTS), law(5.0))
    measured = ratios(points, law(points), np.append(COSTS, 60.0), errors, extend=False)
    assert measured == pytest.approx([1, 1])


def test_a_line_of_one_network_reaches_nothing():
    made = estimate(np.array([1.0]), np.array([20.0]), np.array([1.0]), np.array([20.0]), draws=10)
    assert made.shape == (2, 4)
    assert np.isnan(made).all()


def test_intervals_contain_the_true_ratio():
    """Errors are drawn on 50,000 images. No more of the 95 % intervals may miss than chance allows in 200 trials."""
    rng, trials, true = np.random.default_rng(1), 200, 2.0
    points = np.array([30.0, 150.0, 450.0])
    held = np.zeros(4)
    for trial in range(trials):
        errors, line = (
            e + 100 * np.sqrt(e / 100 * (1 - e / 100) / matched.TEST_IMAGES) * rng.standard_normal(len(e))
            for e in (law(points), law(true * COSTS, factor=true))
        )
        made = estimate(points, errors, true * COSTS, line, draws=200, seed=trial)
        held += (made[:, 1] <= true) & (true <= made[:, 2])
    assert (held / trials > 0.95 - 3 * np.sqrt(0.05 * 0.95 / trials)).all()


@pytest.mark.parametrize(
    ("name", "before"),
    [
        (
            "BiT and ViT, JFT-300M (Table 6)",
            {"B/32 7": 1.8, "L/32 7": 2.3, "B/16 7": 1.9, "L/16 7": 2.5, "L/16 14": 1.9},
        ),
        (
            "ViT and hybrid, JFT-300M (Table 6)",
            {"B/32": 1 / 0.38, "L/32": 1 / 0.5, "L/16 7": 1 / 0.86, "L/16 14": 1 / 1.06},
        ),
        ("ViT and hybrid, ImageNet-21k (AugReg), 224 px", {"small_r26": 1.6, "large_r50": 0.9}),
        ("ViT and hybrid, ImageNet-21k (AugReg), 384 px", {"small_r26": 1.5, "large_r50": 1.1}),
        ("BiT and ViT, ImageNet-21k, 90 epochs", {"base_patch16": 2.3, "large_patch32": 0.4}),
    ],
)
def test_ratios_are_those_of_another_analysis(name, before):
    """Somebody else read these ratios, of the same numbers, off lines that were drawn a little differently."""
    *networks, mean = matched.matched(BY_NAME[name])
    for model, ratio in before.items():
        (mine,) = [r for r in networks if model in r.model]
        assert mine.ratio == pytest.approx(ratio, rel=0.1), mine
        assert mine.low < mine.ratio < mine.high
    known = [r.ratio for r in networks if r.ratio is not None]
    assert mean.ratio == pytest.approx(np.exp(np.mean(np.log(known))))
    assert mean.low < mean.ratio < mean.high


def test_every_comparison_is_answered_and_names_networks_of_its_table():
    for comparison in comparisons():
        *networks, mean = matched.matched(comparison)
        assert mean.model == "all"
        assert len(networks) >= 2
        assert [r.compute for r in networks] == sorted(r.compute for r in networks)
    assert {comparison.controlled for comparison in comparisons()} == {True, False}
