"""Verdicts at several levels: an interval inverted, and Holm's procedure."""

import numpy as np
import pytest
from scipy import stats

from bench.stats.intervals import CHANGE, DRAWS, IMAGES, SEEDS, Estimate, t_quantile, z_quantile
from bench.stats.levels import holm, p_value


def estimate(value: float, **margins: float) -> Estimate:
    return Estimate(
        value=value,
        margins=margins,
        excluded=(),
        moderated=False,
        num_seeds=3,
        num_draws=5,
        num_test=1000,
        seed_df=2.0,
        bounds=CHANGE,
    )


def test_p_of_one_source_is_that_of_its_own_test() -> None:
    x = np.array([0.031, 0.012, 0.024])
    margin = t_quantile(2.0) * x.std(ddof=1) / 3**0.5
    assert p_value(estimate(x.mean(), **{SEEDS: margin})) == pytest.approx(stats.ttest_1samp(x, 0).pvalue, rel=1e-6)
    assert p_value(estimate(0.02, **{IMAGES: z_quantile() * 0.01})) == pytest.approx(2 * stats.norm.sf(2), rel=1e-6)


def test_p_is_five_per_cent_at_the_end_of_a_95_per_cent_interval() -> None:
    e = estimate(0.0, **{SEEDS: 0.03, DRAWS: 0.02, IMAGES: 0.01, "interpolation": 0.005})
    assert p_value(estimate(e.half, **e.margins)) == pytest.approx(0.05, rel=1e-6)
    assert p_value(estimate(-np.hypot(e.half, 0.02), **e.margins), beside=0.02) == pytest.approx(0.05, rel=1e-6)
    assert p_value(estimate(0.9 * e.half, **e.margins)) > 0.05 > p_value(estimate(1.1 * e.half, **e.margins))
    assert p_value(e) == 1.0


def test_holm_keeps_its_share_whatever_is_true_and_gives_up_no_more_than_bonferroni() -> None:
    rng, false = np.random.default_rng(3), 0
    for _ in range(2000):
        p = stats.norm.sf((rng.normal(size=8) + rng.normal()) / 2**0.5)  # dependent
        false += any(holm(p, share=0.05))
    assert false / 2000 <= 0.05 + 3 * (0.05 * 0.95 / 2000) ** 0.5
    p = [0.001, 0.04, 0.013, 0.02, 0.9]  # 0.05 / 5, / 4, / 3, / 2, / 1: the fourth smallest is above 0.025
    assert holm(p, share=0.05) == [True, False, False, False, False]
    assert holm([0.001, 0.04, 0.012, 0.016, 0.9], share=0.05) == [True, False, True, True, False]


def test_holm_with_weights_keeps_its_share_and_is_the_rule_of_equal_ones_where_they_are_equal() -> None:
    rng, false, fallen = np.random.default_rng(4), 0, np.zeros(2)
    weights = [1 / 2] * 2 + [1 / 14] * 14
    for _ in range(2000):
        p = stats.norm.sf(rng.normal(size=16))
        assert holm(p, share=0.05, weights=[3.0] * 16) == holm(p, share=0.05)
        false += any(holm(p, share=0.05, weights=weights))
        p[:2] = stats.norm.sf(rng.normal(loc=2.5, size=2))
        fallen += [any(holm(p, share=0.05, weights=weights)[:2]), any(holm(p, share=0.05)[:2])]
    assert false / 2000 <= 0.05 + 3 * (0.05 * 0.95 / 2000) ** 0.5
    assert fallen[0] > fallen[1]  # what has more weight is found more often
    p = [0.028, 0.02, 0.001, 0.9]  # 0.05 × 1/6, then 0.05 × 1/2 of the 5/6 that are left, then 0.05 × 1/6 of 1/3
    assert holm(p, share=0.05, weights=[1 / 2, 1 / 6, 1 / 6, 1 / 6]) == [True, True, True, False]
    assert holm(p, share=0.05) == [False, False, True, False]
