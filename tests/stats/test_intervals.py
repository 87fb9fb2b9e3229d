"""Intervals against scipy on cases with a known answer, and their coverage by simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import special, stats

from bench.stats import intervals
from bench.stats.intervals import CHANGE, DRAWS, IMAGES, SEEDS, UNBOUNDED, Estimate, Samples


def samples(
    values: list[list[float]], *, image_error: float = 0.0, num_test: int = 1_000_000, model: str = "", trunk: str = ""
) -> Samples:
    grid = np.asarray(values, dtype=float)
    return Samples(
        model=model,
        trunk=trunk or model,
        values_SD=grid,
        seeds=tuple(range(grid.shape[0])),
        draws=tuple(range(grid.shape[1])),
        image_error=image_error,
        num_test=num_test,
    )


def in_log_odds(low: float, high: float) -> tuple[float, float]:
    """An interval in accuracy as one in log-odds, by the delta method at its middle."""
    middle = (low + high) / 2
    half = (high - low) / 2 / (middle * (1 - middle))
    return tuple(special.expit(special.logit(middle) + np.array([-half, half])))


def test_seeds_alone_give_students_interval() -> None:
    data = [0.70, 0.74, 0.71, 0.76, 0.73]
    grid = np.asarray(data)[:, None]
    found = intervals.estimate(
        Samples(values_SD=grid, seeds=(0, 1, 2, 3, 4), draws=(), image_error=0.0, num_test=10**9)
    )
    low, high = stats.t.interval(0.95, 4, loc=np.mean(data), scale=stats.sem(data))
    assert 2 * found.half == pytest.approx(high - low, abs=1e-12)
    assert (found.low, found.high) == pytest.approx(in_log_odds(low, high), abs=1e-8)
    assert found.excluded == () and found.num_draws == 0 and found.seed_df == 4


def test_draws_alone_give_students_interval() -> None:
    data = [0.61, 0.66, 0.64, 0.60]
    one_seed = samples([data])
    found = intervals.estimate(one_seed)
    low, high = stats.t.interval(0.95, 3, loc=np.mean(data), scale=stats.sem(data))
    assert 2 * found.half == pytest.approx(high - low, abs=1e-12)
    assert (found.low, found.high) == pytest.approx(in_log_odds(low, high), abs=1e-6)
    assert found.excluded == (SEEDS,)


@pytest.mark.parametrize("value", [0.0, 0.003, 0.4, 0.997, 1.0])
@pytest.mark.parametrize("half", [0.0, 0.02, 0.3, 3.0])
def test_no_interval_of_an_accuracy_leaves_0_to_1(value: float, half: float) -> None:
    found = Estimate(
        value=value,
        margins={SEEDS: half},
        excluded=(),
        moderated=False,
        num_seeds=2,
        num_draws=0,
        num_test=500,
    )
    assert 0 <= found.low <= value <= found.high <= 1
    assert not half or ((found.low < value or value == 0) and (found.high > value or value == 1))


@pytest.mark.parametrize("p", [0.5, 0.9, 0.98, 0.99])
def test_the_finite_test_set_is_covered_near_the_ceiling(p: float) -> None:
    """Exact: the probability, over all numbers of right answers, that the interval holds the truth."""
    number, held = 300, 0.0
    for right in range(number + 1):
        almost = intervals.inside(right / number, number)
        error = math.sqrt(almost * (1 - almost) / number)
        found = intervals.estimate(
            Samples(values_SD=np.array([[right / number]]), seeds=(), draws=(), image_error=error, num_test=number)
        )
        held += stats.binom.pmf(right, number, p) * (found.low <= p <= found.high)
    assert 0.93 <= held <= 0.985


def test_a_difference_is_cut_at_what_two_accuracies_allow() -> None:
    high, low = samples([[0.98], [0.9]]), samples([[0.05], [0.02]])
    found = intervals.difference(high, low)
    assert found is not None and found.bounds == CHANGE
    e = intervals.estimate(found)
    assert e.value + e.half > 1 == e.high and e.low == pytest.approx(max(-1.0, e.value - e.half))


def test_a_metric_that_is_no_accuracy_is_not_cut() -> None:
    loss = Samples(
        values_SD=np.array([[2.1], [2.3]]), seeds=(0, 1), draws=(), image_error=0.0, num_test=10, bounds=UNBOUNDED
    )
    e = intervals.estimate(loss)
    assert (e.low, e.high) == pytest.approx(stats.t.interval(0.95, 1, loc=2.2, scale=0.1))


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
    twice = [[0.70], [0.72]]
    pooled = intervals.pool([samples(twice, model="a"), samples(twice, model="a"), samples(twice, model="b")])
    assert pooled is not None and pooled.df == 2 and set(pooled.models) == {"a", "b"}
    assert intervals.pool([samples(twice)]) is None  # nothing to moderate with
    variance, _ = intervals.moderated_variance(samples(twice, model="a"), pooled)
    assert variance == pytest.approx(0.0002, rel=0.1)


def test_a_single_run_borrows_only_from_enough_repeats() -> None:
    single = samples([[0.70, 0.71, 0.72]], model="c")
    repeated = [samples([[0.70 + shift], [0.72 + shift]], model=f"m{shift}") for shift in (0.0, 0.01, 0.02, 0.03, 0.04)]
    few = intervals.estimate(single, pooled=intervals.pool(repeated[:2]))
    enough = intervals.estimate(single, pooled=intervals.pool(repeated))
    assert SEEDS in few.excluded and SEEDS not in few.margins and not few.moderated
    assert enough.moderated and enough.margins[SEEDS] == pytest.approx(
        stats.t.ppf(0.975, enough.seed_df) * math.sqrt(0.0002), rel=0.2
    )


def test_a_model_that_contradicts_the_others_keeps_most_of_its_own_variance() -> None:
    calm = [samples([[0.600 + n / 100], [0.602 + n / 100], [0.601 + n / 100]], model=f"m{n}") for n in range(10)]
    wild = samples([[0.50], [0.70], [0.60]], model="wild")
    pooled = intervals.pool([*calm, wild])
    noisy, quiet = (intervals.moderated_variance(item, pooled) for item in (wild, calm[0]))
    assert 0.3 < noisy[0] / wild.seed_variance < 1.2 and noisy[0] > 20 * quiet[0]
    assert intervals.estimate(wild, pooled=pooled).half < intervals.estimate(wild).half


def test_two_models_trained_apart_have_both_their_variances() -> None:
    """Where all variances are known well, that of a difference is their sum, and its degrees of freedom are many."""
    rng = np.random.default_rng(4)
    sides = [samples(rng.normal(0.7, sd, (400, 1)).tolist(), model=f"m{sd}") for sd in (0.01, 0.03)]
    pooled = intervals.pool(sides)
    e = intervals.estimate_difference(sides[0], sides[1], pooled=pooled)
    assert e is not None and e.seed_df > 300
    expected = math.sqrt(sum(side.seed_variance for side in sides) / 400) * stats.t.ppf(0.975, e.seed_df)
    assert e.margins[SEEDS] == pytest.approx(expected, rel=0.02)
    raw = samples([[0.5]])
    pixels = intervals.estimate_difference(sides[0], Samples(**{**vars(raw), "seeds": ()}), pooled=pooled)
    assert pixels is not None
    alone = intervals.estimate(sides[0], pooled=pooled)
    assert pixels.margins[SEEDS] == pytest.approx(alone.margins[SEEDS])


def test_errors_add_as_satterthwaite_has_it() -> None:
    """Equal to Welch's t test of two samples (SciPy)."""
    rng = np.random.default_rng(2)
    a, b = rng.normal(0, 1, 6), rng.normal(0, 3, 4)
    error, df = intervals.sum_of_errors([(stats.sem(a), 5), (stats.sem(b), 3)])
    test = stats.ttest_ind(a, b, equal_var=False)
    assert df == pytest.approx(test.df) and (a.mean() - b.mean()) / error == pytest.approx(test.statistic)


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
        grids = [(0.7 + rng.normal(0, 0.01, (2, 1)) + np.zeros((1, 3))).tolist() for _ in range(10)]
        items = {i: samples(grid, model=f"m{i}") for i, grid in enumerate(grids)}
        for e in intervals.estimate_all(items).values():
            covered += e.low <= 0.7 <= e.high
            widths.append(e.half)
            total += 1
    assert 0.93 <= covered / total <= 0.975
    assert np.mean(widths) < 0.02  # alone, two seeds would give about 0.07


def test_contents_name_what_is_inside_and_outside() -> None:
    text = intervals.contents([intervals.estimate(samples([[0.7, 0.8]], image_error=0.01))])
    assert "few-shot draws" in text and "exclude training noise (one seed)" in text and "95%" in text
