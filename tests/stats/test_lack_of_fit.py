"""The lack-of-fit test errs as often as its p says, and finds a curve of the wrong shape."""

from __future__ import annotations

import numpy as np

from bench.stats.lack_of_fit import GroupMeans, lack_of_fit


def test_it_errs_as_often_as_it_says() -> None:
    """Means about a known law, noise known from 8 degrees of freedom: p is uniform; a bent truth is found."""
    rng, x = np.random.default_rng(0), np.geomspace(1.0, 100.0, 9)
    line, bent = 0.5 * x**-0.2, 0.5 * x**-0.2 * np.where(x > 30, 0.7, 1.0)
    found: dict[str, list[float]] = {"line": [], "bent": []}
    for name, truth in (("line", line), ("bent", bent)):
        for _ in range(400):
            noise = np.full(9, 0.01 * np.sqrt(rng.chisquare(8) / 8))
            means = GroupMeans(x=x, error=truth + rng.normal(0, 0.01, 9), noise=noise, freedom=8)
            slope, level = np.polyfit(np.log(x), np.log(means.error), 1)
            made = lack_of_fit(means, np.exp(level) * x**slope, parameters=2)
            assert made is not None
            found[name].append(made.p)
    assert 0.02 < np.mean(np.array(found["line"]) < 0.05) < 0.09
    assert np.mean(np.array(found["bent"]) < 0.05) > 0.9


def test_without_repeats_nothing_is_tested() -> None:
    means = GroupMeans(x=np.ones(5), error=np.full(5, 0.3), noise=np.full(5, 0.01), freedom=0)
    assert lack_of_fit(means, np.full(5, 0.6), parameters=2) is None
