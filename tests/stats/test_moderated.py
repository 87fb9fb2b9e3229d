"""Moderated variances: against SciPy's F distribution and the published formulas of limma, and their coverage."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import optimize, special, stats

from bench.stats import intervals, moderated
from bench.stats.moderated import Repeated
from tools import measure_coverage as measure

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

    found = optimize.minimize(loss, [np.log(3.0), np.log(variance_M.mean())], method="Nelder-Mead")
    return float(np.exp(found.x[0])), float(np.exp(found.x[1]))


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
    found = moderated.moderate(repeated(variance_M, df=df))
    assert found is not None
    for model, variance in enumerate(variance_M):
        expected = (D0 * S0 + df * variance) / (D0 + df)
        assert found.of(model, 0.0, 0.0) == pytest.approx((expected, D0 + df), rel=1e-8)
    assert found.of("another model", 0.0, 0.0) == pytest.approx((S0, D0), rel=1e-8)


@pytest.mark.parametrize("df", [1, 2])
def test_many_models_determine_the_prior_as_scipy_and_limma_do(df: int) -> None:
    """With thousands of variances, summing over the grid (in octaves of d0) and plugging in the estimate agree."""
    variance_M = variances(np.random.default_rng(df), models=3000, df=df)
    found = moderated.moderate(repeated(variance_M, df=df))
    assert found is not None
    likely, moments = by_likelihood(variance_M, df), by_log_moments(variance_M, df)
    assert likely == pytest.approx((D0, S0), rel=0.15)
    assert moments == pytest.approx((D0, S0), rel=0.35)  # moments of logs use one degree of freedom badly
    variance, freedom = found.of("another model", 0.0, 0.0)
    assert variance == pytest.approx(likely[1], rel=0.1) and freedom == pytest.approx(likely[0], rel=0.1)
    for model in range(0, 3000, 500):
        squeezed = (likely[0] * likely[1] + df * variance_M[model]) / (likely[0] + df)
        assert found.of(model, 0.0, 0.0)[0] == pytest.approx(squeezed, rel=0.15)


def test_one_model_alone_has_its_own_variance() -> None:
    found = moderated.moderate(repeated(np.array([0.004]), df=5))
    assert found is not None
    assert found.of(0, 0.0, 0.0) == pytest.approx((0.004, 5), rel=0.02)


def test_a_trend_over_accuracy_is_followed_and_not_extrapolated() -> None:
    rng = np.random.default_rng(3)
    x_M = np.linspace(-2, 2, 200)
    found = moderated.moderate(repeated(0.01 * np.exp(1.5 * x_M) * rng.chisquare(2, 200) / 2, df=2, x_M=x_M))
    assert found is not None
    ratio = found.of("another model", 1.0, 0.0)[0] / found.of("another model", -1.0, 0.0)[0]
    assert np.log(ratio) == pytest.approx(3.0, abs=0.5)
    assert found.of("another model", 50.0, 0.0) == found.of("another model", 2.0, 0.0)


def test_seeds_that_never_differ_have_no_variance() -> None:
    found = moderated.moderate(repeated(np.zeros(4), df=1))
    assert found is not None and found.of(0, 0.0, 0.0) == (0.0, 4.0)
    assert moderated.moderate([]) is None


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


@pytest.mark.slow
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


MISSED = "variance grows a hundredfold"
"""Differences at the last budget hold 85 to 88 % there: one variance per trunk lags behind such growth."""
SPREADS = [
    pytest.param(name, marks=pytest.mark.xfail(strict=True, reason="the goal is missed")) if name == MISSED else name
    for name in measure.SPREADS
]


@pytest.mark.slow
@pytest.mark.parametrize("level", [measure.MIDDLE, measure.CEILING], ids=["middle", "ceiling"])
@pytest.mark.parametrize("name", SPREADS)
def test_95_percent_intervals_of_differences_hold_93_to_97_percent(name: str, level: tuple[float, float]) -> None:
    for design in measure.DESIGNS:
        share, error, _ = measure.of_differences(measure.studies(60, design, measure.SPREADS[name], level))
        assert plausible(share, error), (design, share)


@pytest.mark.slow
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
