"""Intervals against scipy on cases with a known answer, and their coverage by simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from bench.stats import intervals
from bench.stats.intervals import DRAWS, IMAGES, SEEDS, Pool, Samples


def samples(values: list[list[float]], *, image_error: float = 0.0, num_test: int = 1000) -> Samples:
    grid = np.asarray(values, dtype=float)
    return Samples(
        values_SD=grid,
        seeds=tuple(range(grid.shape[0])),
        draws=tuple(range(grid.shape[1])),
        image_error=image_error,
        num_test=num_test,
    )


def test_seeds_alone_give_students_interval() -> None:
    data = [0.70, 0.74, 0.71, 0.76, 0.73]
    grid = np.asarray(data)[:, None]
    found = intervals.estimate(Samples(values_SD=grid, seeds=(0, 1, 2, 3, 4), draws=(), image_error=0.0, num_test=1000))
    low, high = stats.t.interval(0.95, 4, loc=np.mean(data), scale=stats.sem(data))
    assert (found.low, found.high) == pytest.approx((low, high), abs=1e-12)
    assert found.excluded == () and found.num_draws == 0


def test_draws_alone_give_students_interval() -> None:
    data = [0.61, 0.66, 0.64, 0.60]
    one_seed = samples([data])
    found = intervals.estimate(one_seed)
    low, high = stats.t.interval(0.95, 3, loc=np.mean(data), scale=stats.sem(data))
    assert (found.low, found.high) == pytest.approx((low, high), abs=1e-12)
    assert found.excluded == (SEEDS,)


def test_test_images_alone_give_the_binomial_interval() -> None:
    p, n = 0.8, 2000
    error = math.sqrt(p * (1 - p) / n)
    single = Samples(values_SD=np.full((1, 1), p), seeds=(0,), draws=(0,), image_error=error, num_test=n)
    found = intervals.estimate(single)
    assert found.half == pytest.approx(stats.norm.ppf(0.975) * error)
    assert found.excluded == (SEEDS, DRAWS) and set(found.margins) == {IMAGES}


def test_margins_add_in_quadrature() -> None:
    found = intervals.estimate(samples([[0.70, 0.72, 0.74], [0.73, 0.74, 0.78]], image_error=0.01))
    assert found.half == pytest.approx(math.sqrt(sum(m**2 for m in found.margins.values())))
    assert set(found.margins) == {SEEDS, DRAWS, IMAGES}


def test_pooling_counts_trunks_not_horizons() -> None:
    twice = samples([[0.70], [0.72]])
    pooled = intervals.pool([("a", twice), ("a", twice), ("b", twice)])
    assert pooled is not None and (pooled.df, pooled.trunks) == (2, 2)
    assert pooled.variance == pytest.approx(0.0002)


def test_a_single_run_borrows_only_from_enough_repeats() -> None:
    single = samples([[0.70, 0.71, 0.72]])
    few = intervals.estimate(single, pooled=Pool(variance=1e-4, df=2, trunks=2))
    enough = intervals.estimate(single, pooled=Pool(variance=1e-4, df=5, trunks=5))
    assert SEEDS in few.excluded and SEEDS not in few.margins
    assert enough.pooled and enough.margins[SEEDS] == pytest.approx(stats.t.ppf(0.975, 5) * 0.01)


def test_a_cell_that_contradicts_the_pool_keeps_its_own_variance() -> None:
    wild = samples([[0.40], [0.80], [0.60]])
    found = intervals.estimate(wild, pooled=Pool(variance=1e-5, df=20, trunks=20))
    assert not found.pooled and found.margins[SEEDS] == pytest.approx(stats.t.ppf(0.975, 2) * 0.2 / math.sqrt(3))


def test_paired_difference_cancels_what_both_sides_share() -> None:
    rng = np.random.default_rng(0)
    shared = rng.normal(0, 0.05, (3, 4))
    a, b = samples((0.7 + shared).tolist()), samples((0.6 + shared).tolist())
    found = intervals.difference(a, b)
    assert found is not None
    e = intervals.estimate(found)
    assert e.value == pytest.approx(0.1) and e.half < 1e-12


def test_raw_pixels_have_draws_but_no_seeds() -> None:
    pixels = Samples(values_SD=np.asarray([[0.5, 0.6, 0.7]]), seeds=(), draws=(0, 1, 2), image_error=0.0, num_test=10)
    trained = samples([[0.7, 0.8, 0.9], [0.72, 0.82, 0.92]])
    found = intervals.difference(trained, pixels)
    assert found is not None and found.seeds == (0, 1)
    assert intervals.estimate(found).value == pytest.approx(0.21)
    assert SEEDS not in intervals.estimate(pixels).excluded


@pytest.mark.parametrize("seed_sd, draw_sd", [(0.01, 0.01), (0.02, 0.002), (0.001, 0.02), (0.0, 0.0)])
@pytest.mark.parametrize("seeds, draws", [(2, 3), (3, 5), (1, 3)])
def test_coverage_is_at_least_what_is_stated(seed_sd: float, draw_sd: float, seeds: int, draws: int) -> None:
    """With one seed the interval must cover the mean of *this* training run, not of the recipe."""
    rng = np.random.default_rng(7)
    truth, n, covered, studies = 0.7, 2000, 0, 400
    error = math.sqrt(truth * (1 - truth) / n)
    for _ in range(studies):
        seed_noise = rng.normal(0, seed_sd, (seeds, 1))
        values = truth + seed_noise + rng.normal(0, draw_sd, (1, draws)) + rng.normal(0, error)
        values = values + rng.normal(0, 0.002, (seeds, draws))
        found = intervals.estimate(samples(values.tolist(), image_error=error))
        target = truth + (seed_noise.mean() if seeds == 1 else 0.0)
        covered += found.low <= target <= found.high
    assert covered / studies >= 0.93


def test_coverage_with_pooled_variance() -> None:
    """Ten cells with two seeds each: pooling makes intervals short and still honest."""
    rng = np.random.default_rng(3)
    covered, total, widths = 0, 0, []
    for _ in range(120):
        items = {i: samples((0.7 + rng.normal(0, 0.01, (2, 1)) + np.zeros((1, 3))).tolist()) for i in range(10)}
        for e in intervals.estimate_all(items, trunk={i: i for i in items}).values():
            covered += e.low <= 0.7 <= e.high
            widths.append(e.half)
            total += 1
    assert 0.93 <= covered / total <= 0.975
    assert np.mean(widths) < 0.02  # alone, two seeds would give about 0.07


def test_contents_name_what_is_inside_and_outside() -> None:
    text = intervals.contents([intervals.estimate(samples([[0.7, 0.8]], image_error=0.01))])
    assert "few-shot draws" in text and "exclude training noise (one seed)" in text and "95%" in text
