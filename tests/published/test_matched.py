"""Families at equal error: against power laws with a known ratio, and what was found in the same tables before."""

import math

import numpy as np
import pytest

from bench.published import matched
from bench.published.matched import comparisons, estimate, ratios

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


BY_METRIC = {"ImageNet": 2.02, "ReaL": 1.00, "CIFAR-10": 2.5, "CIFAR-100": 3.3, "Pets": 3.8, "mean of five sets": 3.7}
"""BiT's compute over ViT's, by another analysis of Table 6."""


def test_ratios_of_table_6_by_metric_are_those_of_another_analysis():
    made = {m.metric: m for m in matched.by_metric(BY_NAME["BiT and ViT, JFT-300M (Table 6)"])}
    assert list(made) == list(matched.METRICS)
    for metric, ratio in BY_METRIC.items():
        assert made[metric].ratio == pytest.approx(ratio, rel=0.03), metric
        assert made[metric].low < made[metric].ratio < made[metric].high
    assert [made[m].networks for m in ("ImageNet", "ReaL", "CIFAR-10", "CIFAR-100", "Pets")] == [5, 5, 3, 4, 3]
    assert made["Flowers"].ratio is None and made["Flowers"].networks == 0  # every ViT is better than every ResNet


def test_other_tables_have_imagenet_alone():
    for comparison in comparisons():
        wanted = matched.METRICS if comparison.name.endswith("(Table 6)") else ("ImageNet",)
        assert tuple(m.metric for m in matched.by_metric(comparison)) == wanted


@pytest.mark.parametrize("comparison", comparisons(), ids=lambda c: c.name)
def test_intervals_hold_the_test_images_and_chance_between_trainings(comparison):
    """Both in quadrature, in logarithms, at either end; a family leads where the whole does not hold 1."""
    first, second = comparison.families
    plain = estimate(first["compute"], first["error"], second["compute"], second["error"])
    for ratio, (value, low, high, margin) in zip(matched.matched(comparison), plain, strict=True):
        if ratio.ratio is None:
            assert np.isnan(value) and not ratio.decided
            continue
        for end, of_images in ((ratio.low, low), (ratio.high, high)):
            wanted = math.log(of_images / value) ** 2 + math.log(margin) ** 2
            assert math.log(end / ratio.ratio) ** 2 == pytest.approx(wanted)
        assert ratio.decided == (ratio.low > 1 or ratio.high < 1)


def test_single_trainings_widen_the_headline():
    *_, mean = matched.matched(BY_NAME["BiT and ViT, JFT-300M (Table 6)"])
    assert mean.margin == pytest.approx(1.47, abs=0.01)
    assert (mean.low, mean.high) == pytest.approx((1.35, 3.0), rel=0.02)


def test_every_comparison_is_answered_and_names_networks_of_its_table():
    for comparison in comparisons():
        *networks, mean = matched.matched(comparison)
        assert mean.model == "all"
        assert len(networks) >= 2
        assert [r.compute for r in networks] == sorted(r.compute for r in networks)
    assert {comparison.controlled for comparison in comparisons()} == {True, False}
