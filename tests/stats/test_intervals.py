"""Intervals against SciPy: moderated variances and their components."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import optimize, special, stats

from bench.stats import intervals, moderated
from bench.stats.components import MIN_VARIANCE, Arm, Components, Observations, Target, fit, half_width, law
from bench.stats.intervals import CHANGE, DRAWS, IMAGES, SEEDS, UNBOUNDED, Estimate, Samples, t_quantile
from bench.stats.moderated import Repeated
from tools import measure_coverage as measure

# -- intervals against scipy on cases with a known answer, and their coverage by simulation ----------------------------


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


@pytest.mark.parametrize(
    "values, excluded, df",
    [([[0.70], [0.74], [0.71], [0.76], [0.73]], (), 4), ([[0.61, 0.66, 0.64, 0.60]], (SEEDS,), 0)],
    ids=["seeds", "draws"],
)
def test_seeds_or_draws_alone_give_students_interval(values: list[list[float]], excluded: tuple[str, ...], df: int):
    grid = np.asarray(values)
    draws = tuple(range(grid.size)) if len(grid) == 1 else ()
    seeds = tuple(range(len(grid)))
    e = intervals.estimate(Samples(values_SD=grid, seeds=seeds, draws=draws, image_error=0.0, num_test=10**9))
    low, high = stats.t.interval(0.95, grid.size - 1, loc=grid.mean(), scale=stats.sem(grid, axis=None))
    assert 2 * e.half == pytest.approx(high - low, abs=1e-12)
    assert (e.low, e.high) == pytest.approx(in_log_odds(low, high), abs=1e-8)
    assert (e.excluded, e.num_draws, e.seed_df) == (excluded, len(draws), df)


@pytest.mark.parametrize("value", [0.0, 0.003, 0.4, 0.997, 1.0])
@pytest.mark.parametrize("half", [0.0, 0.02, 0.3, 3.0])
def test_no_interval_of_an_accuracy_leaves_0_to_1(value: float, half: float) -> None:
    e = Estimate(
        value=value,
        margins={SEEDS: half},
        excluded=(),
        moderated=False,
        num_seeds=2,
        num_draws=0,
        num_test=500,
    )
    assert 0 <= e.low <= value <= e.high <= 1
    assert not half or ((e.low < value or value == 0) and (e.high > value or value == 1))


@pytest.mark.parametrize("p", [0.5, 0.9, 0.98, 0.99])
def test_the_finite_test_set_is_covered_near_the_ceiling(p: float) -> None:
    """Exact: the probability, over all numbers of right answers, that the interval holds the truth."""
    number, held = 300, 0.0
    for right in range(number + 1):
        almost = intervals.inside(right / number, number)
        error = math.sqrt(almost * (1 - almost) / number)
        e = intervals.estimate(
            Samples(values_SD=np.array([[right / number]]), seeds=(), draws=(), image_error=error, num_test=number)
        )
        held += stats.binom.pmf(right, number, p) * (e.low <= p <= e.high)
    assert 0.93 <= held <= 0.985


def test_a_difference_is_cut_at_what_two_accuracies_allow() -> None:
    high, low = samples([[0.98], [0.9]]), samples([[0.05], [0.02]])
    gain = intervals.difference(high, low)
    assert gain is not None and gain.bounds == CHANGE
    e = intervals.estimate(gain)
    assert e.value + e.half > 1 == e.high and e.low == pytest.approx(max(-1.0, e.value - e.half))


def test_a_metric_that_is_no_accuracy_is_not_cut() -> None:
    loss = Samples(
        values_SD=np.array([[2.1], [2.3]]), seeds=(0, 1), draws=(), image_error=0.0, num_test=10, bounds=UNBOUNDED
    )
    e = intervals.estimate(loss)
    assert (e.low, e.high) == pytest.approx(stats.t.interval(0.95, 1, loc=2.2, scale=0.1))
    assert math.isnan(loss.inside) and (loss.log_odds, loss.per_log_odds) == (0.0, 1.0), "it has no log-odds"


def test_an_accuracy_of_all_or_none_lies_half_a_test_image_inside() -> None:
    assert (intervals.inside(0.0, 200), intervals.inside(1.0, 200)) == pytest.approx((0.0025, 0.9975))
    assert 0 < intervals.inside(0.0, 0) < 1e-5 and intervals.inside(0.3, 200) == 0.3


def test_an_average_over_tasks_keeps_the_seeds_and_adds_the_errors_of_test_sets() -> None:
    first = samples([[0.6, 0.7], [0.8, 0.9]], image_error=0.03, num_test=100)
    other = replace(samples([[0.2], [0.5]], image_error=0.04, num_test=50), seeds=(1, 0))
    mean = intervals.average([first, other])
    assert mean is not None and mean.values_SD == pytest.approx(np.array([[0.55], [0.5]]))
    assert (mean.seeds, mean.draws, mean.num_test, mean.tasks) == ((0, 1), (0,), 50, 2)
    assert mean.image_error == pytest.approx(0.05 / 2)
    undrawn = replace(samples([[0.2], [0.5]]), draws=())
    both = intervals.average([first, undrawn])
    assert both is not None and both.values_SD == pytest.approx((first.values_SD + undrawn.values_SD) / 2)
    assert intervals.average([first, replace(other, seeds=(5, 6))]) is None


def test_between_two_budgets_scores_and_errors_are_interpolated() -> None:
    first, last = (
        replace(samples([[v], [v]], image_error=e), images_seen=n) for v, e, n in ((0.4, 0.1, 8), (0.8, 0.3, 16))
    )
    for weight in (0.0, 0.25, 0.75, 1.0):
        made = intervals.mix(first, last, weight)
        assert made is not None and made.mean == pytest.approx(np.interp(weight, [0, 1], [0.4, 0.8]))
        assert made.image_error == pytest.approx(np.interp(weight, [0, 1], [0.1, 0.3]))
        assert made.images_seen == (16 if weight > 0.5 else 8)


def test_of_models_seeds_are_independent_and_test_images_shared() -> None:
    e = intervals.estimate(samples([[0.70], [0.74], [0.71]], image_error=0.02))
    mean = intervals.mean_of([e, e, e, e])
    assert mean.margins[IMAGES] == pytest.approx(e.margins[IMAGES])
    one = e.margins[SEEDS] / t_quantile(e.seed_df)
    error, df = intervals.sum_of_errors([(one, e.seed_df)] * 4)
    assert mean.margins[SEEDS] == pytest.approx(t_quantile(df) * error / 4) and mean.value == pytest.approx(e.value)
    other = intervals.estimate(samples([[0.9], [0.9]]))
    assert intervals.mean_of([e, other]).value == pytest.approx((e.value + 0.9) / 2)
    assert intervals.mean_of([e, other]).num_seeds == 2


def test_an_error_that_nobody_knows_is_left_out_and_said_to_be() -> None:
    """A metric such as purity, recorded without a standard error, has seeds alone."""
    purity = Samples(
        values_SD=np.array([[0.7], [0.9]]), seeds=(0, 1), draws=(), image_error=math.nan, num_test=10, bounds=UNBOUNDED
    )
    e = intervals.estimate(purity)
    assert (e.low, e.high) == pytest.approx(stats.t.interval(0.95, 1, loc=0.8, scale=0.1))
    assert e.excluded == (intervals.IMAGES,)
    assert intervals.mean_of([e, e]).excluded == (intervals.IMAGES,)


def test_test_images_alone_give_the_binomial_interval() -> None:
    p, n = 0.8, 2000
    error = math.sqrt(p * (1 - p) / n)
    single = Samples(values_SD=np.full((1, 1), p), seeds=(0,), draws=(0,), image_error=error, num_test=n)
    e = intervals.estimate(single)
    assert e.half == pytest.approx(stats.norm.ppf(0.975) * error)
    assert e.excluded == (SEEDS, DRAWS) and set(e.margins) == {IMAGES}


def test_margins_add_in_quadrature() -> None:
    e = intervals.estimate(samples([[0.70, 0.72, 0.74], [0.73, 0.74, 0.78]], image_error=0.01))
    assert e.half == pytest.approx(math.sqrt(sum(m**2 for m in e.margins.values())))
    assert set(e.margins) == {SEEDS, DRAWS, IMAGES}


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
    alone = intervals.estimate(sides[0], pooled=pooled)
    assert pixels.margins[SEEDS] == pytest.approx(alone.margins[SEEDS])


@pytest.mark.parametrize("errors", [((1.0, 4.0), (3.0, 5.0)), ((1.0, 2.5),) * 6, ((0.1, 3.0), (2.0, 40.0), (1.0, 8.0))])
def test_errors_add_as_behrens_and_fisher_have_it(errors) -> None:
    """Student's quantile of what they add up to is the quantile of a sum of independent t variables."""
    rng = np.random.default_rng(2)
    drawn = sum(error * rng.standard_t(df, 400_000) for error, df in errors)
    error, df = intervals.sum_of_errors(errors)
    for level in (0.9, 0.95):
        assert intervals.t_quantile(df, level) * error == pytest.approx(np.quantile(np.abs(drawn), level), rel=0.02)


def test_errors_that_are_known_well_add_in_quadrature_and_shared_variances_are_known_no_better() -> None:
    error, df = intervals.sum_of_errors([(3.0, 5000.0), (4.0, 5000.0)])
    assert error == pytest.approx(5, rel=1e-3) and df > 5000
    assert intervals.sum_of_errors([(0.0, 3.0), (0.0, 2.0)]) == (0.0, 2.0)
    assert intervals.sum_of_errors([(3.0, 2.0), (4.0, 2.0)], ["a", "a"]) == pytest.approx((5.0, 2.0))
    apart, shared = (intervals.sum_of_errors([(1.0, 2.0)] * 3, of) for of in ("abc", "aab"))
    assert apart[1] > shared[1] > 2.0


def test_paired_difference_cancels_what_both_sides_share() -> None:
    rng = np.random.default_rng(0)
    shared = rng.normal(0, 0.05, (3, 4))
    a, b = samples((0.7 + shared).tolist()), samples((0.6 + shared).tolist())
    gain = intervals.difference(a, b)
    e = intervals.estimate(gain)
    assert e.value == pytest.approx(0.1) and e.half < 1e-12


def test_raw_pixels_have_draws_but_no_seeds() -> None:
    pixels = Samples(values_SD=np.asarray([[0.5, 0.6, 0.7]]), seeds=(), draws=(0, 1, 2), image_error=0.0, num_test=10)
    trained = samples([[0.7, 0.8, 0.9], [0.72, 0.82, 0.92]])
    gain = intervals.difference(trained, pixels)
    assert gain is not None and gain.seeds == (0, 1)
    assert intervals.estimate(gain).value == pytest.approx(0.21)
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
        e = intervals.estimate(samples(values.tolist(), image_error=error))
        target = truth + (seed_noise.mean() if seeds == 1 else 0.0)
        covered += e.low <= target <= e.high
    assert covered / studies >= 0.93


# -- moderated variances: against SciPy's F distribution and the published formulas of limma, and their coverage -------


D0, S0 = 4.0, 0.0025  # a study's prior


def variances(rng: np.random.Generator, *, models: int, df: int, d0: float = D0, s0: float = S0) -> np.ndarray:
    """Sample variances of models whose true ones are scaled inverse chi-squares."""
    true = d0 * s0 / rng.chisquare(d0, models)
    return true * rng.chisquare(df, models) / df


def repeated(variance_M: np.ndarray, *, df: int, x_M: np.ndarray | None = None) -> list[Repeated]:
    x_M = np.zeros(len(variance_M)) if x_M is None else x_M
    return [
        Repeated(model=n, trunk=n, log_odds=float(x), log_images=0.0, variance=float(v), df=df)
        for n, (v, x) in enumerate(zip(variance_M, x_M, strict=True))
    ]


def by_likelihood(variance_M: np.ndarray, df: int) -> tuple[float, float]:
    """(d0, s0²) at the maximum of SciPy's F density."""

    def loss(logs: np.ndarray) -> float:
        d0, s0 = np.exp(logs)
        return -float((stats.f.logpdf(variance_M / s0, df, d0) - np.log(s0)).sum())

    optimum = optimize.minimize(loss, [np.log(3.0), np.log(variance_M.mean())], method="Nelder-Mead")
    return float(np.exp(optimum.x[0])), float(np.exp(optimum.x[1]))


def by_log_moments(variance_M: np.ndarray, df: int) -> tuple[float, float]:
    """(d0, s0²) by limma's `fitFDist`: moments of log s² (Smyth 2004, section 6.2)."""
    e_M = np.log(variance_M) - special.digamma(df / 2) + np.log(df / 2)
    excess = e_M.var(ddof=1) - special.polygamma(1, df / 2)
    d0 = 2 * optimize.brentq(lambda x: special.polygamma(1, x) - excess, 1e-3, 1e6)
    return d0, float(np.exp(e_M.mean() + special.digamma(d0 / 2) - np.log(d0 / 2)))


def test_the_likelihood_is_that_of_a_scaled_f_distribution() -> None:
    variance_M, df = variances(np.random.default_rng(0), models=12, df=2), 2
    settings = [(1.0, 0.001), (4.0, 0.0025), (64.0, 0.01)]
    ours = [
        moderated.log_likelihood(np.array(d0), np.array(s0), np.full(12, float(df)), df * variance_M).sum()
        for d0, s0 in settings
    ]
    theirs = [(stats.f.logpdf(variance_M / s0, df, d0) - np.log(s0)).sum() for d0, s0 in settings]
    assert np.diff(ours) == pytest.approx(np.diff(theirs), rel=1e-9)


def test_with_a_known_prior_it_is_limmas_squeezed_variance(monkeypatch: pytest.MonkeyPatch) -> None:
    """(d0 s0² + d s²) / (d0 + d), with d0 + d degrees of freedom."""
    variance_M, df = np.array([0.001, 0.002, 0.012]), 2
    monkeypatch.setattr(moderated, "PRIOR_DF", np.array([D0]))
    monkeypatch.setattr(
        moderated, "_peak", lambda d0, df, squares: (np.full((1, 1, 1), np.log(S0)), np.ones((1, 1, 1)))
    )
    monkeypatch.setattr(moderated, "NODES", np.zeros(1))
    monkeypatch.setattr(moderated, "SLOPES", (np.zeros(1), np.zeros(1)))
    prior = moderated.moderate(repeated(variance_M, df=df))
    for model, variance in enumerate(variance_M):
        expected = (D0 * S0 + df * variance) / (D0 + df)
        assert prior.of(model, 0.0, 0.0) == pytest.approx((expected, D0 + df), rel=1e-8)
    assert prior.of("another model", 0.0, 0.0) == pytest.approx((S0, D0), rel=1e-8)


@pytest.mark.parametrize("df", [1, 2])
def test_many_models_determine_the_prior_as_scipy_and_limma_do(df: int) -> None:
    """With thousands of variances, summing over the grid (in octaves of d0) and plugging in the estimate agree."""
    variance_M = variances(np.random.default_rng(df), models=3000, df=df)
    prior = moderated.moderate(repeated(variance_M, df=df))
    likely, moments = by_likelihood(variance_M, df), by_log_moments(variance_M, df)
    assert likely == pytest.approx((D0, S0), rel=0.15)
    assert moments == pytest.approx((D0, S0), rel=0.35)  # moments of logs use one degree of freedom badly
    variance, freedom = prior.of("another model", 0.0, 0.0)
    assert variance == pytest.approx(likely[1], rel=0.1) and freedom == pytest.approx(likely[0], rel=0.1)
    for model in range(0, 3000, 500):
        squeezed = (likely[0] * likely[1] + df * variance_M[model]) / (likely[0] + df)
        assert prior.of(model, 0.0, 0.0)[0] == pytest.approx(squeezed, rel=0.15)


@pytest.mark.parametrize("variances, df, expected", [([0.004], 5, (0.004, 5)), ([0.0] * 4, 1, (0.0, 4.0))])
def test_one_model_and_seeds_that_never_differ_have_their_own_variance(variances, df, expected) -> None:
    assert moderated.moderate(repeated(np.array(variances), df=df)).of(0, 0.0, 0.0) == pytest.approx(expected, rel=0.02)
    assert moderated.moderate([]) is None


def test_a_trend_over_accuracy_is_followed_and_not_extrapolated() -> None:
    rng = np.random.default_rng(3)
    x_M = np.linspace(-2, 2, 200)
    prior = moderated.moderate(repeated(0.01 * np.exp(1.5 * x_M) * rng.chisquare(2, 200) / 2, df=2, x_M=x_M))
    ratio = prior.of("another model", 1.0, 0.0)[0] / prior.of("another model", -1.0, 0.0)[0]
    assert np.log(ratio) == pytest.approx(3.0, abs=0.5)
    assert prior.of("another model", 50.0, 0.0) == prior.of("another model", 2.0, 0.0)


@pytest.mark.parametrize("y", [1e-4, 0.1, 1.6449340668482264, 30.0])
def test_the_inverse_of_the_trigamma_function(y: float) -> None:
    assert float(special.polygamma(1, moderated.inverse_trigamma(y))) == pytest.approx(y, rel=1e-9)


def test_budgets_of_a_trunk_count_as_fewer_variances() -> None:
    """The variance of the mean of their sample variances, over that of one, is one over their number."""
    rng, budgets = np.random.default_rng(5), 4
    lags = np.abs(np.subtract.outer(np.arange(budgets), np.arange(budgets)))
    luck_NB = rng.multivariate_normal(np.zeros(budgets), moderated.ADJACENT**lags, 200_000)
    squares_NB = luck_NB**2
    assert squares_NB[:, 0].var() / squares_NB.mean(axis=1).var() == pytest.approx(
        moderated.independent(budgets), rel=0.03
    )
    assert moderated.independent(1) == 1


# -- coverage ----------------------------------------------------------------------------------------------------------


def plausible(share: float, error: float, *, low: float = 0.93, high: float = 0.97) -> bool:
    """Whether chance explains a share if the true coverage lies in [low, high]: wrong once in a thousand."""
    return low - 3.3 * error <= share <= high + 3.3 * error


@pytest.mark.nightly
@pytest.mark.parametrize("level", [measure.MIDDLE, measure.CEILING], ids=["middle", "ceiling"])
@pytest.mark.parametrize("name", list(measure.SPREADS))
def test_95_percent_intervals_hold_93_to_97_percent(name: str, level: tuple[float, float]) -> None:
    for design in measure.DESIGNS:
        made = measure.studies(60, design, measure.SPREADS[name], level)
        now, before = (measure.coverage(made, rule) for rule in (measure.moderated, measure.one_variance_or_none))
        assert plausible(now.share, now.error), (design, now)
        assert now.outside == 0, (design, now)
        if name != "equal":  # where all variances are equal, one for all is the best that there is
            assert now.widest < before.widest, (design, now, before)


MISSED_GOALS = {"variance grows a hundredfold": 0.87}
"""Where the goal of 93 % is missed: such growth is four standard deviations from what trends are expected to be."""


@pytest.mark.nightly
@pytest.mark.parametrize("level", [measure.MIDDLE, measure.CEILING], ids=["middle", "ceiling"])
@pytest.mark.parametrize("name", list(measure.SPREADS))
def test_95_percent_intervals_of_differences_hold_93_to_97_percent(name: str, level: tuple[float, float]) -> None:
    for design in measure.DESIGNS:
        made = measure.studies(60, design, measure.SPREADS[name], level)
        held = measure.of_differences(made, measure.differences)
        low = MISSED_GOALS.get(name, 0.93)
        assert plausible(held.share, held.error, low=low), (design, held)
        assert plausible(held.mean_share, held.mean_error, low=low), (design, held)


@pytest.mark.nightly
def test_a_noisy_model_is_held_more_often_than_by_one_variance_for_all() -> None:
    (spread,) = measure.ROGUE.values()
    for design in measure.DESIGNS:
        made = measure.studies(60, design, spread, measure.MIDDLE)
        now, before = (measure.coverage(made, rule) for rule in (measure.moderated, measure.one_variance_or_none))
        assert now.of_noisiest > before.of_noisiest + 0.1 and now.median < before.median


def test_coverage_of_a_few_studies() -> None:
    """A quick part of the above, judged by a binomial test: one point of every study."""
    rng = np.random.default_rng(11)
    made = measure.studies(
        150, measure.Design(models=6, trunks=12, budgets=2, seeds=2), measure.SPREADS["equal"], (0, 1)
    )
    held = []
    for one in made:
        key = list(one.samples)[int(rng.integers(len(one.samples)))]
        e = intervals.estimate_all(one.samples)[key]
        held.append(e.low <= one.truth[key] <= e.high)
    assert stats.binom.cdf(sum(held), len(held), 0.93) > 5e-4
    assert stats.binom.sf(sum(held) - 1, len(held), 0.97) > 5e-4


# -- variance components are found again, and intervals are as wide as simulated studies scatter -----------------------


TRUE = Components(model=0.02**2, point=0.01**2, trunk=0.015**2, run=0.01**2, df=1000)
LAWS = {"A": (0.5, 0.06, -0.004), "B": (0.45, 0.05, 0.0)}
ARMS = [
    Arm(model=f"{family}{n}", family=family, x=tuple(n + np.arange(4.0)), seeds=2 + n % 2)
    for family in LAWS
    for n in range(3)
]
FAMILIES = {arm.model: arm.family for arm in ARMS}
TARGET = Target(
    pair=("A", "B"),
    points=tuple((float(x), f"A{min(2, int(x) // 2)}", f"B{min(2, int(x) // 2)}") for x in np.linspace(1, 5, 9)),
)


def study(rng, arms=ARMS) -> tuple[Observations, float]:
    """A study drawn from the model, and the lead that it should find."""
    rows, place = [], {model: rng.normal(0, TRUE.model**0.5) for model in FAMILIES}
    for arm in arms:
        points = {x: rng.normal(0, TRUE.point**0.5) for x in arm.x}
        for seed in range(arm.seeds):
            trunk = rng.normal(0, TRUE.trunk**0.5)
            for x in arm.x:
                mean = np.polyval(LAWS[arm.family][::-1], x) + place[arm.model] + points[x]
                value = mean + trunk + rng.normal(0, TRUE.run**0.5)
                rows.append((float(value), x, arm.family, arm.model, f"{arm.model} {seed}"))
    values, xs, families, models, trunks = zip(*rows, strict=True)
    seen = Observations(values=values, x=xs, families=families, models=models, variants=models, trunks=trunks)
    lead = [
        np.polyval(LAWS["A"][::-1], x) + place[a] - np.polyval(LAWS["B"][::-1], x) - place[b]
        for x, a, b in TARGET.points
    ]
    return seen, float(np.mean(lead))


def predicted(seen: Observations) -> float:
    """The lead by the true components: laws by generalised least squares, and each model's place beside its law."""
    y_N, families, models = np.asarray(seen.values), np.asarray(seen.families), np.asarray(seen.models)
    names = sorted(LAWS)
    X_NP = np.concatenate([law(seen.x, centre=0.0) * (families == name)[:, None] for name in names], axis=1)
    points = np.array([f"{model} {x}" for model, x in zip(seen.models, seen.x, strict=True)])
    labels = (models, points, np.asarray(seen.trunks), np.arange(len(y_N)))
    V_NN = sum(v * (same[:, None] == same) for v, same in zip(TRUE.variances, labels, strict=True))
    W_NP = np.linalg.solve(V_NN + MIN_VARIANCE * np.eye(len(y_N)), X_NP)
    beta_P = np.linalg.solve(X_NP.T @ W_NP, W_NP.T @ y_N)
    left_N = np.linalg.solve(V_NN + MIN_VARIANCE * np.eye(len(y_N)), y_N - X_NP @ beta_P)
    betas = dict(zip(names, beta_P.reshape(len(names), -1), strict=True))

    def at(family: str, model: str, x: float) -> float:
        return float(law([x], centre=0.0)[0] @ betas[family]) + TRUE.model * float(left_N[models == model].sum())

    return float(np.mean([at("A", a, x) - at("B", b, x) for x, a, b in TARGET.points]))


def test_components_are_found_again():
    rng = np.random.default_rng(0)
    fits = [fit(study(rng)[0]) for _ in range(12)]
    for name in ("point", "trunk", "run"):
        mean = np.mean([getattr(each, name) for each in fits])
        assert mean == pytest.approx(getattr(TRUE, name), rel=0.5), name


@pytest.mark.parametrize(
    "arms",
    [
        ARMS,
        [arm for arm in ARMS if arm.model != "A1"],
        [Arm(model=a.model, family=a.family, x=a.x[:2], seeds=1) for a in ARMS],
    ],
)
def test_the_interval_is_as_wide_as_simulated_studies_scatter(arms):
    rng = np.random.default_rng(1)
    off = [predicted(seen) - lead for seen, lead in (study(rng, arms) for _ in range(200))]
    df = TRUE.df + sum(arm.seeds - 1 for arm in arms)
    wanted = half_width(arms, TRUE, TARGET, families=FAMILIES) / t_quantile(df, 0.95)
    assert np.sqrt(np.mean(np.square(off))) == pytest.approx(wanted, rel=0.2)  # 4 standard errors of 200


def test_less_data_never_narrow_an_interval_and_too_little_tells_nothing():
    full = half_width(ARMS, TRUE, TARGET, families=FAMILIES)
    assert half_width(ARMS[1:], TRUE, TARGET, families=FAMILIES) > full
    assert half_width([a for a in ARMS if a.family == "A"], TRUE, TARGET, families=FAMILIES) == float("inf")
