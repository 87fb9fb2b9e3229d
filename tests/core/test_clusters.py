"""The error of a mean over groups: repeats do not narrow it, and intervals by it hold the truth."""

import numpy as np
import pytest
from scipy import stats

from bench.core.clusters import cluster_error


def test_repeats_of_an_image_do_not_narrow_the_error() -> None:
    x = np.random.default_rng(0).random(20)
    once, number = cluster_error(x, np.arange(20))
    assert (once, number) == (pytest.approx(stats.sem(x)), 20)
    assert cluster_error(np.repeat(x, 7), np.repeat(np.arange(20) * 3, 7))[0] == pytest.approx(once)
    assert np.isnan(cluster_error(x, np.zeros(20))[0])


def test_intervals_over_groups_hold_the_truth_where_those_over_images_do_not() -> None:
    """Groups of unequal sizes whose own accuracies differ: 0.7 on average."""
    rng, held = np.random.default_rng(1), np.zeros((2_000, 2), dtype=bool)
    for trial in held:
        sizes = rng.integers(5, 15, 25)
        right = rng.random(sizes.sum()) < np.repeat(rng.beta(3.5, 1.5, 25), sizes)
        error, number = cluster_error(right, np.repeat(np.arange(25), sizes))
        binomial = np.sqrt(right.mean() * (1 - right.mean()) / len(right))
        trial[:] = abs(right.mean() - 0.7) < np.array([stats.t.ppf(0.975, number - 1) * error, 1.96 * binomial])
    assert held.mean(axis=0)[0] == pytest.approx(0.95, abs=0.02) and held.mean(axis=0)[1] < 0.85
