"""Fits against SciPy: forms, lack of fit."""

import dataclasses
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from scipy.optimize import curve_fit, minimize

from bench.core.errors import UserError
from bench.laws import averaging, bootstrap, diagnostics, fit, forms, isoflop, model_selection, table_diagnostics
from bench.laws.crossing import Crossing, crossing
from bench.laws.extrapolation import forecast
from bench.laws.lack_of_fit import GroupMeans, lack_of_fit
from tests.laws.test_coverage import plausible
from tools import coverage_of_fits as coverage

# -- fits on synthetic truths and on published data: optimum, intervals, ranking, refusals -----------------------------


FIXTURES = Path(__file__).resolve().parent / "fixtures"
X = np.geomspace(1, 1000, 14)
TRUTHS = {name: truth.law for name, truth in coverage.TRUTHS.items()}


def points(y: np.ndarray, x: np.ndarray = X) -> fit.Points:
    return fit.Points(x=x[None], y=y, cluster=np.arange(len(y)))


def noisy(truth, rng: np.random.Generator, noise: float = 0.02, x: np.ndarray = X) -> fit.Points:
    return points(truth(x) * np.exp(rng.normal(0, noise, len(x))), x)


def fixture(name: str) -> pd.DataFrame:
    """A published table; README.md beside it has source and licence."""
    return pd.read_csv(FIXTURES / name)


@pytest.mark.parametrize("name", [f.name for f in forms.CURVES])
def test_noise_free_truth_is_recovered(name: str) -> None:
    made = fit.fit(points(TRUTHS[name](X)), forms.FORMS[name], loss="squares")
    assert made.rms < 1e-5
    assert made.predict(np.array([2000.0]))[0] == pytest.approx(TRUTHS[name](2000.0), rel=1e-3)


@pytest.mark.parametrize("form", [*forms.FORMS.values(), *map(forms.two_families, forms.CURVES)], ids=lambda f: f.name)
def test_analytic_derivatives_agree_with_differences(form: forms.Form) -> None:
    rng = np.random.default_rng(0)
    x = rng.uniform(0.1, 10, (form.inputs, 7))
    if form is forms.REPEATED:
        x[1] = x[2] * rng.uniform(1.1, 30, 7)  # at least one epoch
    theta = next(iter(form.starts(x, rng.uniform(0.3, 0.9, 7)))) + 0.1
    jacobian = np.broadcast_to(form.jacobian(theta, x), (7, form.size))
    for i in range(form.size):
        step = np.eye(form.size)[i] * 1e-6
        slope = (form.log_predict(theta + step, x) - form.log_predict(theta - step, x)) / 2e-6
        np.testing.assert_allclose(jacobian[:, i], slope, rtol=1e-5, atol=1e-8)


def test_chinchilla_reaches_the_published_optimum() -> None:
    table = fixture("chinchilla_fig4_subset_kyo.csv")
    data = fit.Points(x=table[["N", "D"]].to_numpy(float).T, y=table["loss"].to_numpy(), cluster=np.arange(len(table)))
    made = fit.fit(data, forms.CHINCHILLA, delta=1e-3)
    assert made.objective <= 8.4010e-4
    for name, value in (("alpha", 0.3426), ("beta", 0.3420), ("E", 1.7839)):
        assert made.parameters[name] == pytest.approx(value, abs=0.002)
    assert made.agree > made.starts / 2 and made.gradient < 1e-8
    low, high = bootstrap.resample(made, draws=100).parameters()["alpha"]
    assert low < 0.3426 < high and 0.01 < high - low < 0.1


def test_the_worth_of_repeats_is_recovered() -> None:
    """Muennighoff et al. 2023: 80 epochs are worth little more than 40; their R* is about 15."""
    rng = np.random.default_rng(0)
    n, u, epochs = (
        part.ravel()
        for part in np.meshgrid(np.geomspace(1e6, 1e8, 4), np.geomspace(1e6, 1e9, 4), [1.0, 4.0, 20.0, 80.0])
    )
    worth = u * (1 + 15 * (1 - np.exp((1 - epochs) / 15)))
    y = (1.7 + 400 * n**-0.34 + 400 * worth**-0.28) * np.exp(rng.normal(0, 1e-3, len(n)))
    data = fit.Points(x=np.stack([n, u * epochs, u]), y=y, cluster=np.arange(len(n)))
    made = fit.fit(data, forms.REPEATED, loss="squares", max_starts=30)
    assert made.parameters["R"] == pytest.approx(15, abs=1) and made.parameters["beta"] == pytest.approx(0.28, abs=0.01)


@pytest.mark.parametrize("apart", [7e-7, 0.005, 0.011, 0.03])
def test_sizes_that_are_nearly_one_throw_no_isoflop_minimum_far_below_all_losses(apart: float) -> None:
    """As in the runs of Chinchilla that were read off a figure: 424,609,600 and 424,609,900, losses 2.66 and 2.64. An
    Akima curve through both swings to 1e-113 beside them."""
    best = {budget: 1e8 * (budget / 1e18) ** 0.5 for budget in (1e18, 1e19, 1e20, 1e21)}
    rows = [
        (budget, size, 2.6 + 0.05 * np.log(size / at) ** 2)
        for budget, at in best.items()
        for size in at * np.geomspace(0.2, 6, 10)
    ]
    plain = isoflop.fit(*np.array(rows).T)
    disturbed = list(rows)
    for budget, at in best.items():
        size = at * np.geomspace(0.2, 6, 10)[1]
        loss = 2.6 + 0.05 * np.log(size / at) ** 2
        disturbed[disturbed.index((budget, size, loss))] = (budget, size, loss - 0.01)
        disturbed.append((budget, size * (1 + apart), loss + 0.01))
    made = isoflop.fit(*np.array(disturbed).T)
    for minimum in made.minima:
        lowest = min(loss for budget, _, loss in disturbed if budget == minimum.budget)
        assert lowest - 0.01 < minimum.loss <= lowest + 0.02
    assert len(made.minima) == 4 and made.exponent == pytest.approx(plain.exponent, abs=0.05)


def test_isoflop_exponent_of_porian() -> None:
    table = fixture("porian2024_rw_tuned_isoflop.csv")
    fitted = isoflop.fit(*(table[c].to_numpy(float) for c in ("flops", "n_params", "val_loss")))
    assert fitted.exponent == pytest.approx(0.4970, abs=0.002)
    assert fitted.low < 0.4970 < fitted.high and len(fitted.minima) == 12


def test_zhai_extrapolates_a_real_vit_curve_best() -> None:
    table = fixture("alabdulmohsin2022_vits16_inet5.csv")
    small, large = table[table["seen_examples"] <= 1.6e9], table[table["seen_examples"] >= 1.9e9]
    data = points(small["error"].to_numpy(), small["seen_examples"].to_numpy(float))
    errors = {}
    for form in (forms.POWER, forms.POWER_FLOOR, forms.ZHAI, forms.M3):
        predicted = fit.fit(data, form).log_predict(large["seen_examples"].to_numpy(float))
        errors[form.name] = float(np.sqrt(((predicted - np.log(large["error"])) ** 2).mean()))
    assert min(errors, key=lambda name: errors[name]) == "zhai" and errors["zhai"] < 0.008


def test_trunks_that_share_luck_widen_the_interval() -> None:
    rng = np.random.default_rng(5)
    shared = np.repeat(rng.normal(0, 0.05, 5), 4)
    x = np.geomspace(1, 1000, 20)
    y = TRUTHS["power"](x) * np.exp(shared)
    alone = fit.Points(x=x[None], y=y, cluster=np.arange(20))
    together = fit.Points(x=x[None], y=y, cluster=np.repeat(np.arange(5), 4))
    widths = []
    for data in (alone, together):
        low, high = bootstrap.resample(fit.fit(data, forms.POWER, loss="squares")).parameters()["c"]
        widths.append(high - low)
    assert widths[1] > 1.2 * widths[0]


def test_ranking_prefers_what_predicts_the_large() -> None:
    rng = np.random.default_rng(2)
    x = np.geomspace(1, 3000, 30)
    names = "power-floor", "power"
    bent, straight = (forecast(noisy(TRUTHS[name], rng, 0.003, x), forms.CURVES[:4]) for name in names)
    ranked = model_selection.rank([bent])
    assert ranked[-1].form.name == "power" and model_selection.select(ranked).name != "power"
    assert model_selection.select(model_selection.rank([straight])).size == 2
    together = model_selection.rank([bent, straight])
    assert model_selection.select(together).name == "power-floor"  # one form for both: power bends in neither


def refits(truth, rng: np.random.Generator, seed: int) -> bootstrap.Resampled:
    return bootstrap.resample(fit.fit(noisy(truth, rng, 0.01), forms.POWER), draws=150, seed=seed)


def cross(first, second, rng: np.random.Generator, seed: int) -> Crossing:
    return crossing(refits(first, rng, seed), refits(second, rng, seed + 1), names=("ViT", "ResNet"))


PAIRS = 120


def test_a_crossing_is_found_with_its_interval() -> None:
    rng, covered = np.random.default_rng(3), 0
    truth = (0.8 / 0.6) ** (1 / 0.1)  # 0.8 x^-.3 = 0.6 x^-.2
    for seed in range(PAIRS):
        crossing = cross(lambda x: 0.8 * x**-0.3, lambda x: 0.6 * x**-0.2, rng, 2 * seed)
        assert crossing.verdict == "yes" and crossing.overtakes == "ViT"
        covered += crossing.low <= truth <= crossing.high
    assert plausible(covered / PAIRS, studies=PAIRS)


def test_laws_that_do_not_cross_are_not_said_to() -> None:
    """ViT has 1.7 % more error at every x: that may be too little to tell, or "no", with ResNet ahead."""
    rng = np.random.default_rng(4)
    crossings = [cross(lambda x: 0.61 * x**-0.3, lambda x: 0.6 * x**-0.3, rng, 2 * s) for s in range(40)]
    assert sum(c.verdict == "yes" for c in crossings) <= 1
    decided = [c for c in crossings if c.verdict == "no"]
    assert decided and sum(c.leader == "ResNet" for c in decided) >= len(decided) - 1


def test_equal_laws_cannot_be_told_apart() -> None:
    rng = np.random.default_rng(4)
    crossings = [cross(lambda x: 0.6 * x**-0.3, lambda x: 0.6 * x**-0.3, rng, 2 * s) for s in range(40)]
    assert sum(c.verdict == "cannot tell" for c in crossings) >= 36


def test_a_floor_is_where_the_law_ends_whatever_the_unit_of_x() -> None:
    theta = np.array([0.5, -1.0, -0.7])
    end = np.exp(forms.M3.log_predict(theta, np.array([[1e300]])))
    assert forms.M3.limit(forms.M3.natural(theta, np.ones(1))) == pytest.approx(float(end[0]))
    assert forms.M3.limit({"b": 1e-250, "g": 1e120, "c": 3.0}) == pytest.approx(1e110)


def test_refusals() -> None:
    with pytest.raises(UserError, match="cannot determine the 4 parameters"):
        fit.fit(points(np.array([0.5, 0.4, 0.3, 0.2]), X[:4]), forms.ZHAI)
    with pytest.raises(UserError, match="positive"):
        fit.fit(points(np.r_[0.0, TRUTHS["power"](X)[1:]]), forms.POWER)
    params, tokens = np.geomspace(1e7, 1e9, 12), np.geomspace(1e9, 1e11, 12)
    flops = 6 * params * tokens
    table_diagnostics.check_units(flops, params, tokens)
    with np.errstate(all="raise"):  # a baseline without parameters or training says nothing
        table_diagnostics.check_units(*(np.append(column, [0.0, np.nan]) for column in (flops, params, tokens)))
    with pytest.raises(UserError, match="interior minimum"):
        n = np.tile(np.geomspace(1e6, 1e8, 6), 4)
        isoflop.fit(np.repeat([1e15, 1e16, 1e17, 1e18], 6), n, 5 - 0.1 * np.log(n))


def test_warnings_name_what_is_weak() -> None:
    x = np.array([1.0, 1.5, 2.0, 3.0])
    made = fit.fit(points(TRUTHS["power"](x) * np.array([1, 1.01, 0.99, 1.0]), x), forms.POWER)
    text = " ".join(diagnostics.warnings(made, repeated=False))
    for part in ("distinct values", "decades", "No run was repeated"):
        assert part in text
    floor = fit.fit(noisy(TRUTHS["power"], np.random.default_rng(1), 0.001), forms.POWER_FLOOR)
    assert any("went to zero" in w for w in diagnostics.warnings(floor))
    rising = points(np.r_[TRUTHS["power"](X)[:8], np.linspace(0.5, 0.9, 6)])
    assert diagnostics.check_errors(rising)


def test_a_mean_reduced_early_stop_is_caught() -> None:
    """The mean of a small loss, given to L-BFGS-B with its own tolerances, stops early and says that it converged:
    how the published fit of Hoffmann et al. 2022 was lost (Besiroglu et al. 2024)."""
    rng = np.random.default_rng(0)
    n, d = (part.ravel() for part in np.meshgrid(np.geomspace(1e8, 1e10, 8), np.geomspace(1e9, 1e11, 8)))
    y = (1.8 + 480 * n**-0.35 + 2100 * d**-0.37) * np.exp(rng.normal(0, 2e-3, len(n)))
    data = fit.Points(x=np.stack([n, d]), y=y, cluster=np.arange(len(n)))

    def mean_huber(theta: np.ndarray) -> float:
        residuals = forms.CHINCHILLA.log_predict(theta, data.x) - np.log(y)
        return fit.loss_sum(residuals, loss="huber", delta=1e-3) / len(y)

    published = np.array([np.log(406.4), np.log(410.7), np.log(1.69), 0.34, 0.28])
    stopped = minimize(mean_huber, published, method="L-BFGS-B")
    assert stopped.success
    names = forms.CHINCHILLA.parameters
    theirs = dict(zip(names, (*np.exp(stopped.x[:3]), *stopped.x[3:]), strict=True))
    made = fit.fit(data, forms.CHINCHILLA, delta=1e-3)
    (warning,) = table_diagnostics.check_published(made, theirs)
    assert "no optimum" in warning and "mean objective stops like this" in warning
    assert table_diagnostics.check_published(made, made.parameters) == []


def test_an_optimiser_that_did_not_move_is_caught() -> None:
    made = fit.fit(noisy(TRUTHS["power"], np.random.default_rng(1)), forms.POWER)
    stopped = dataclasses.replace(made, objective=made.objective_at_start, agree=1)
    text = " ".join(diagnostics.warnings(stopped))
    assert "did not move" in text and "not be the global one" in text


def test_a_tie_goes_to_the_simplest_form_that_also_follows_its_own_points() -> None:
    def ranked(form: forms.Form, miss: float) -> model_selection.Ranked:
        return model_selection.Ranked(form=form, extrapolation_rmse=0.04, rollouts=5, in_sample_rmse=miss)

    alike = [ranked(forms.ZHAI, 0.006), ranked(forms.POWER, 0.009), ranked(forms.BROKEN, 0.005)]
    assert model_selection.select(alike).name == "power"
    assert model_selection.select([ranked(forms.POWER, 0.05), *alike[::2]]).name == "zhai"


def test_a_large_table_ends_where_all_of_its_points_say() -> None:
    rng = np.random.default_rng(0)
    x = np.exp(rng.uniform(np.log(1e6), np.log(1e9), 2000))
    y = (0.2 + 50 * x**-0.3) * np.exp(rng.normal(0, 0.02, len(x)))
    made = fit.fit(fit.Points(x=x[None], y=y, cluster=np.arange(len(x))), forms.FORMS["power-floor"], loss="squares")

    def log_law(log_x: np.ndarray, e: float, b: float, c: float) -> np.ndarray:
        return np.log(e + b * np.exp(-c * log_x))

    expected, _ = curve_fit(log_law, np.log(x), np.log(y), p0=(0.2, 50.0, 0.3), xtol=1e-14, ftol=1e-14)
    assert list(made.parameters.values()) == pytest.approx(expected, rel=1e-5) and made.agree > 3


@pytest.mark.parametrize("loss", ["huber", "squares", "absolute"])
def test_the_gradient_is_that_of_the_weighted_objective(loss: str) -> None:
    rng = np.random.default_rng(0)
    data, weight = noisy(TRUTHS["power"], rng, noise=0.1), rng.uniform(0.1, 3, len(X))
    theta, log_y, delta = np.array([0.3, -0.2]), np.log(data.y), 0.5

    def objective(at: np.ndarray) -> float:
        return fit.loss_sum(forms.POWER.log_predict(at, data.x) - log_y, loss=loss, delta=delta, weight=weight)

    numeric = [(objective(theta + step) - objective(theta - step)) / 2e-6 for step in 1e-6 * np.eye(2)]
    residuals = forms.POWER.log_predict(theta, data.x) - log_y
    gradient = fit._gradient(forms.POWER, theta, data.x, residuals, loss=loss, delta=delta, weight=weight)
    assert gradient == pytest.approx(np.abs(numeric).max(), rel=1e-6)


def test_a_weighted_fit_ends_where_its_own_gradient_vanishes() -> None:
    rng = np.random.default_rng(0)
    data = noisy(TRUTHS["power"], rng, noise=0.1)
    assert fit.fit(data, forms.POWER, loss="squares", weight=rng.uniform(0.1, 3, len(X))).gradient < 1e-6


def test_one_more_run_lies_in_its_interval_as_often_as_it_says() -> None:
    inside, further = [], np.array([[20.0, 400.0]])
    for seed in range(60):
        rng = np.random.default_rng(seed)
        data = noisy(TRUTHS["power"], rng, noise=0.05)
        made = fit.fit(data, forms.POWER, loss="squares")
        bands = forecast(data, [forms.POWER], half_life=None).bands(bootstrap.resample(made, draws=200), further)
        measured = TRUTHS["power"](further[0]) * np.exp(rng.normal(0, 0.05, 2))
        inside += [low < y < high for (low, high), y in zip(bands.one_run, measured, strict=True)]
    assert 0.82 < np.mean(inside) < 0.97


# -- the lack-of-fit test errs as often as its p says, and finds a curve of the wrong shape ----------------------------


def test_it_errs_as_often_as_it_says() -> None:
    """Means about a known law, noise known from 8 degrees of freedom: p is uniform; a bent truth is found."""
    rng, x = np.random.default_rng(0), np.geomspace(1.0, 100.0, 9)
    line, bent = 0.5 * x**-0.2, 0.5 * x**-0.2 * np.where(x > 30, 0.7, 1.0)
    p_values: dict[str, list[float]] = {"line": [], "bent": []}
    for name, truth in (("line", line), ("bent", bent)):
        for _ in range(400):
            noise = np.full(9, 0.01 * np.sqrt(rng.chisquare(8) / 8))
            means = GroupMeans(x=x, error=truth + rng.normal(0, 0.01, 9), noise=noise, freedom=8)
            slope, level = np.polyfit(np.log(x), np.log(means.error), 1)
            made = lack_of_fit(means, np.exp(level) * x**slope, parameters=2)
            p_values[name].append(made.p)
    assert 0.02 < np.mean(np.array(p_values["line"]) < 0.05) < 0.09
    assert np.mean(np.array(p_values["bent"]) < 0.05) > 0.9


def test_without_repeats_nothing_is_tested() -> None:
    means = GroupMeans(x=np.ones(5), error=np.full(5, 0.3), noise=np.full(5, 0.01), freedom=0)
    assert lack_of_fit(means, np.full(5, 0.6), parameters=2) is None


def test_the_p_of_an_interval_is_that_of_its_own_t_test() -> None:
    x = np.array([0.031, 0.012, 0.024])
    half = stats.t.ppf(0.975, 2) * x.std(ddof=1) / 3**0.5
    assert bootstrap.p_of_t(x.mean(), half, df=2.0, level=0.95) == pytest.approx(stats.ttest_1samp(x, 0).pvalue)
    assert bootstrap.p_of_t(half, half, df=2.0, level=0.95) == pytest.approx(0.05)
    assert bootstrap.p_of_t(0.0, 0.0, df=2.0, level=0.95) == 1 > bootstrap.p_of_t(0.1, 0.0, df=2.0, level=0.95)


def test_draws_do_not_depend_on_the_last_digit_of_a_freedom() -> None:
    """numpy's chi-square takes another number of random numbers below 2 degrees of freedom than from there on."""
    parts = {"within": 1.0, "between": 1.0, "sums": np.array([9.0, 4.0]), "standardised": np.array([-1.0, 1.0])}
    expected, cluster = np.array([[9.0, 0.0], [2.0, 4.0]]), np.arange(12) // 3
    below, at = (
        bootstrap.VarianceComponents(freedom=(9.0, f), expected=expected, **parts).draw(
            np.random.default_rng(1), cluster, 50
        )
        for f in (np.nextafter(2.0, 0.0), 2.0)
    )
    np.testing.assert_allclose(below, at, rtol=1e-9)


def test_last_digits_of_equal_weights_do_not_move_a_resample():
    """Forms that become each other, as a power law with a floor of 0, tie but for a processor's rounding; one resample
    more or less of a form shifts all random numbers after it."""
    weights, rng = (
        np.array([86.825, 47.65065, 17.8738, 47.65065, 86.825, 47.65065, 17.8738, 47.65065]),
        np.random.default_rng(0),
    )
    weights = weights / weights.sum()
    shares = [averaging._shares(weights * (1 + 1e-9 * rng.uniform(-1, 1, 8)), 400).tolist() for _ in range(50)]
    assert shares == [shares[0]] * 50 and sum(shares[0]) == 400
