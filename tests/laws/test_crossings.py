"""Intervals that do not take the form for granted, and what is said of a crossing.

`python -m tools.measure_crossings` prints the coverage of every quantity by form; here fewer pairs are judged, by
binomial bounds.
"""

import json
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from scipy.optimize import curve_fit

from bench.commands import fit as verb
from bench.laws import averaging, bootstrap, fit, forms, isoflop
from bench.laws.crossing import CANNOT_TELL, NO, YES, Crossing, crossing
from tests.laws.test_coverage import plausible
from tools import measure_crossings

LOW, HIGH = 1.0, 1000.0
PAIRS = 48
STUDIES = 60


def points(y: np.ndarray, x: np.ndarray) -> fit.Points:
    return fit.Points(x=x[None], y=y, cluster=np.arange(len(y)))


# -- weights -----------------------------------------------------------------------------------------------------------


def test_the_criterion_is_akaikes() -> None:
    """n log(SSE / n) + 2 k, with scipy's least squares; k counts the variance too."""
    rng, x = np.random.default_rng(0), np.geomspace(1, 1000, 9)
    y = (0.2 + 0.7 * x**-0.4) * np.exp(rng.normal(0, 0.02, 9))
    made = fit.fit(points(y, x), forms.POWER_FLOOR, loss="squares")
    best, _ = curve_fit(lambda x, e, b, c: np.log(e + b * x**-c), x, np.log(y), p0=(0.2, 0.7, 0.4))
    left = np.log(y) - np.log(best[0] + best[1] * x ** -best[2])
    assert averaging.criterion(made, [made]) == pytest.approx(9 * np.log((left**2).sum() / 9) + 2 * 4, abs=1e-4)


def test_runs_of_one_trunk_count_as_little_as_their_shared_noise_leaves_of_them() -> None:
    """With trunks that share nearly all of their noise, twice the points say no more about the form."""
    rng, x = np.random.default_rng(1), np.geomspace(1, 1000, 10)
    y = (0.15 + 0.7 * x**-0.4) * np.exp(rng.normal(0, 0.03, 10))
    double = np.exp(np.tile(np.log(y), 2) + rng.normal(0, 1e-4, 20))
    made = [fit.Points(x=np.tile(x, 2)[None], y=double, cluster=np.tile(np.arange(10), 2)), points(y, x)]
    apart = fit.Points(x=made[0].x, y=double, cluster=np.arange(20))
    weights = [averaging.form_weights(averaging.fits_of(p, forms.CURVES[:3], loss="squares")) for p in (*made, apart)]
    odds = [np.log(w["power-floor"] / w["power"]) for w in weights]
    assert odds[2] > 1.5 * odds[1] and abs(odds[0] - odds[1]) < 0.6 * (odds[2] - odds[1])


def test_a_form_far_off_is_ruled_out_and_draws_follow_weights() -> None:
    rng, x = np.random.default_rng(2), np.geomspace(1, 1000, 12)
    fits = averaging.fits_of(
        points((0.3 + 0.7 * x**-0.5) * np.exp(rng.normal(0, 0.01, 12)), x), forms.CURVES, loss="huber"
    )
    made = averaging.average(fits, shown=fits[1], draws=100)
    assert made.weights["power"] < 1e-3 and sum(made.weights.values()) == pytest.approx(1)
    assert len(made.predictions(x)) == 100 == len(made.slopes(30.0))
    drawn = {part.fit.form.name: len(part.thetas) for part in made.parts}
    assert all(abs(drawn.get(name, 0) - 100 * weight) <= 1 for name, weight in made.weights.items())


THETAS = {
    "power": [0.0, 0.3],
    "power-floor": np.log([0.2, 0.7, 0.4]),
    "zhai": np.log([0.2, 0.7, 3.0, 0.4]),
    "m3": np.log([0.9, 0.1, 0.3]),
    "m4": np.log([0.2, 0.7, 1.5, 0.7, 0.5]),
    "bnsl1": [np.log(0.1), 0.0, 0.1, 0.3, np.log(40.0), np.log(0.5)],
}


@pytest.mark.parametrize("name", list(THETAS))
def test_the_floor_and_the_exponent_are_those_that_large_x_show(name: str) -> None:
    """There, y above the limit falls as one power of x, with the exponent that the form states."""
    form, theta = forms.FORMS[name], np.array(THETAS[name])
    natural = form.natural(theta, np.ones(1))
    left = np.exp(form.log_predict(theta, np.array([[1e6, 1e7, 1e8]]))) - form.limit(natural)
    slopes = -np.diff(np.log10(left))
    assert slopes[0] == pytest.approx(slopes[1], rel=0.01)
    expected = form.decay(natural) if form.decay else {"m3": 1.0, "bnsl1": 0.4}[name]
    assert slopes[1] == pytest.approx(expected, rel=0.01)


# -- statements --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Lines:
    """Refits whose log y is a line in u = log x about its middle: `mean` (height, slope) and its covariance."""

    mean: tuple[float, float]
    spread: float = 0.0
    seed: int = 0
    freedom: float = 1e9

    @property
    def fit(self) -> fit.FormFit:
        x = np.geomspace(LOW, HIGH, 5)
        return fit.fit(points(np.exp(self.mean[0] + self.mean[1] * self.u(x)), x), forms.POWER, max_starts=1)

    @staticmethod
    def u(x: np.ndarray) -> np.ndarray:
        return np.log(x) - np.log(LOW * HIGH) / 2

    def predictions(self, x: np.ndarray) -> np.ndarray:
        rng = np.random.default_rng(self.seed)
        height, slope = (rng.normal(m, s * self.spread, (10_000, 1)) for m, s in zip(self.mean, (1, 0.5), strict=True))
        return np.exp(height + slope * self.u(x))


FLAT = Lines((0.0, 0.0))


def told(height: float, slope: float, spread: float = 0.02) -> Crossing:
    return crossing(Lines((height, slope), spread), FLAT, names=("ViT", "ResNet"))


def fieller(height: float, slope: float, spread: float = 0.02) -> np.ndarray:
    """x with (height + slope u)^2 = z^2 (1 + u^2 / 4) spread^2, in order."""
    z = stats.norm.ppf(0.95) * spread
    roots = np.roots([slope**2 - z**2 / 4, 2 * height * slope, height**2 - z**2])
    return np.sort(np.exp(roots + np.log(LOW * HIGH) / 2))


def test_the_interval_of_a_crossing_is_fiellers() -> None:
    for height, slope in ((0.0, -0.05), (0.05, -0.06), (-0.03, -0.04)):
        crossing, ends = told(height, slope), fieller(height, slope)
        assert crossing.verdict == YES and crossing.overtakes == "ViT"
        assert [crossing.low, crossing.high] == pytest.approx(ends, rel=0.05)
        assert crossing.x == pytest.approx(np.exp(-height / slope) * np.sqrt(LOW * HIGH), rel=0.03)
    assert told(0.0, 0.05).overtakes == "ResNet"


@dataclass(frozen=True)
class Draws:
    """Refits of a law that is flat: log y of each."""

    log_y: np.ndarray
    freedom: float

    @property
    def fit(self) -> fit.FormFit:
        return FLAT.fit

    def predictions(self, x: np.ndarray) -> np.ndarray:
        return np.exp(np.broadcast_to(self.log_y[:, None], (len(self.log_y), len(x))))


@pytest.mark.parametrize("shift", [-1, 1])
def test_the_interval_of_a_difference_is_welchs(shift: int) -> None:
    """Two groups with Student's t intervals, of unlike width and number: one is ahead where scipy's interval of Welch's
    test leaves zero out."""
    rng = np.random.default_rng(0)
    samples = rng.normal(0, 1, 5), rng.normal(0, 3, 9)
    draws = [np.mean(s) + stats.sem(s) * rng.standard_t(len(s) - 1, 200_000) for s in samples]
    expected = stats.ttest_ind(*samples, equal_var=False).confidence_interval(0.9)
    end = expected.low if shift > 0 else expected.high
    half = abs(end - np.mean(samples[0]) + np.mean(samples[1]))
    for beyond, verdict in ((-0.04, CANNOT_TELL), (0.04, NO)):
        moved = Draws(draws[0] - end + shift * beyond * half, 4.0)
        assert crossing(moved, Draws(draws[1], 8.0)).verdict == verdict


def test_a_crossing_that_the_points_leave_open_has_one_end() -> None:
    """ResNet is ahead at small x, and the laws come so close at the end that they may cross there or beyond."""
    crossing = told(0.1, -0.03)
    assert (
        crossing.verdict == CANNOT_TELL and crossing.leader == "ResNet" and crossing.x is None and crossing.high is None
    )
    assert crossing.low == pytest.approx(fieller(0.1, -0.03)[0], rel=0.05)
    crossing = told(0.1, 0.03)
    assert crossing.verdict == CANNOT_TELL and crossing.leader == "ResNet" and crossing.low is None
    assert crossing.high == pytest.approx(fieller(0.1, 0.03)[-1], rel=0.05)


def test_what_else_is_said() -> None:
    ahead = told(-0.5, 0.0)
    assert (ahead.verdict, ahead.leader, ahead.throughout) == (NO, "ViT", True) and ahead.share > 0.95
    nothing = told(0.0, 0.0)
    assert (nothing.verdict, nothing.leader, nothing.low, nothing.high) == (CANNOT_TELL, None, None, None)
    middle = told(0.06, 0.0)  # surely ahead where both were measured most, not at the ends
    assert middle.verdict == CANNOT_TELL and middle.leader == "ResNet" and "only between" in middle.reason


def test_equal_groups_are_resampled_apart(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    """The same points under two names: with the same noise in both, their difference would seem to be known exactly."""
    rng, x = np.random.default_rng(0), np.geomspace(1e9, 1e12, 8)
    y = 20 * x**-0.15 * np.exp(rng.normal(0, 0.02, 8))
    parts = [pd.DataFrame({"family": name, "compute": x, "error": y * by}) for name, by in (("A", 1.0), ("B", 1.002))]
    pd.concat(parts).to_csv(tmp_path / "runs.csv", index=False)
    words = [str(tmp_path / "runs.csv"), "--x", "compute", "--y", "error", "--group", "family", "--bootstrap", "100"]
    for form in ("power", "auto"):
        assert verb.main([*words, "--form", form, "--json"]) == 0
        (crossing,) = json.loads(capsys.readouterr().out)["crossings"]
        assert crossing["verdict"] == CANNOT_TELL and not crossing["throughout"]


def test_auto_prints_forms_weights_and_what_holds_over_them(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    rng, x = np.random.default_rng(3), np.geomspace(1e9, 1e12, 9)
    laws = {"ViT": 0.2 + 8 * (x / 1e8) ** -0.6, "ResNet": 0.24 + 8 * (x / 1e8) ** -0.65}
    parts = [
        pd.DataFrame({"family": name, "compute": x, "error": y * np.exp(rng.normal(0, 0.01, 9))})
        for name, y in laws.items()
    ]
    pd.concat(parts).to_csv(tmp_path / "runs.csv", index=False)
    words = [str(tmp_path / "runs.csv"), "--x", "compute", "--y", "error", "--group", "family", "--bootstrap", "100"]
    assert verb.main([*words, "--json"]) == 0
    for answer in json.loads(capsys.readouterr().out)["fits"].values():
        assert sum(answer["forms"].values()) == pytest.approx(1) and answer["forms"]["power"] < 0.01
        assert set(answer["over_forms"]) == {"slope", "floor", "exponent"}
        for q in answer["over_forms"].values():
            assert q["low"] <= q["value"] <= q["high"]
    assert verb.main([*words, "--form", "power"]) == 0
    assert capsys.readouterr().out.count("These points speak against a power law (") == 2


@pytest.mark.parametrize("noise", [0.002, 0.01])
def test_the_exponent_of_best_sizes_is_held_though_its_noise_is_assumed(noise: float) -> None:
    """A Chinchilla law (its best size is known) at six budgets; the noise is the assumed one, or five times that."""
    rng, held = np.random.default_rng(0), 0
    for _ in range(STUDIES):
        alpha, beta = rng.uniform(0.28, 0.4), rng.uniform(0.25, 0.4)
        exponent = beta / (alpha + beta)
        budget = np.repeat(np.geomspace(1e17, 1e20, 6), 7)
        best = (alpha * 406 / (beta * 410)) ** (1 / (alpha + beta)) * (budget / 6) ** exponent
        size = best * np.tile(np.geomspace(1 / 8, 8, 7), 6) * np.repeat(np.exp(rng.uniform(-0.3, 0.3, 6)), 7)
        loss = 1.7 + 406 / size**alpha + 410 / (budget / 6 / size) ** beta
        made = isoflop.fit(budget, size, loss * np.exp(rng.normal(0, noise, 42)), draws=200)
        held += made.low <= exponent <= made.high
    assert plausible(held / STUDIES, studies=STUDIES, high=1.0)


@pytest.mark.nightly
def test_intervals_hold_the_truth_as_often_as_stated_whether_the_form_is_known_or_not() -> None:
    held: dict[tuple[str, str], list[bool]] = defaultdict(list)
    for seed in range(PAIRS):
        for judged in measure_crossings.simulate(seed, draws=120, old=False):
            held[judged.method, judged.quantity].append(judged.held)
    usual = ("y inside", "y at the end", "slope", "floor", "exponent", "crossing, any statement")
    # a crossing that is none takes a leader that is none: one side of the interval
    bounds = dict.fromkeys(usual, (0.85, 0.95)) | {measure_crossings.NOT_SAID: (0.95, 1.0)}
    for method in (measure_crossings.OVER_FORMS, measure_crossings.GIVEN_FORM):
        for name, (low, high) in bounds.items():
            share, studies = float(np.mean(held[method, name])), len(held[method, name])
            assert plausible(share, studies=studies, low=low, high=high), (method, name, share, studies)


def test_one_form_misses_floors_that_it_does_not_have() -> None:
    """The alternative that is not taken: the interval of one form alone where the truth has another."""
    rng, x = np.random.default_rng(5), np.geomspace(1, 1000, 7)
    held = {"power": 0, "over forms": 0}
    for seed in range(8):
        data = points((0.25 + 0.9 * x**-0.4) * np.exp(rng.normal(0, 0.02, 7)), x)
        alone = averaging.alone(bootstrap.resample(fit.fit(data, forms.POWER), draws=100, seed=seed))
        over = averaging.average(
            averaging.fits_of(data, forms.CURVES[:4], loss="huber"), shown=alone.fit, draws=100, seed=seed
        )
        for name, made in (("power", alone), ("over forms", over)):
            low, high = made.interval(made.predictions(np.array([1000.0]))[:, 0])
            held[name] += low <= 0.25 + 0.9 * 1000**-0.4 <= high
    assert held["over forms"] >= 6 > held["power"]
