"""Interpolation errs by no more than it says: on parabolas, on smooth curves, at the kept horizons of real studies."""

import math
from pathlib import Path

import numpy as np
import pytest

from bench.analysis import lr_sweep, study_data
from bench.stats import interpolation

KEPT = Path(__file__).parents[1] / "records"


def test_the_error_on_a_parabola_is_bend_times_the_true_one():
    rng = np.random.default_rng(0)
    for bend in (-0.7, 0.0, 2.0):
        x_N = np.sort(rng.uniform(0, 5, 6))
        y_N = bend * x_N**2 + 3 * x_N - 1
        np.testing.assert_allclose(interpolation.curvatures(x_N, y_N)[0], abs(2 * bend), atol=1e-9)
        for at in rng.uniform(x_N[0], x_N[-1], 20):
            missed = abs(np.interp(at, x_N, y_N) - (bend * at**2 + 3 * at - 1))
            assert interpolation.error(x_N, y_N, at) == pytest.approx(interpolation.BEND * missed, abs=1e-9)
        assert all(interpolation.error(x_N, y_N, x) == 0 for x in x_N)


def test_two_points_bend_as_others_do_or_are_only_monotone():
    x, y = (0.0, 2.0), (0.1, 0.5)
    assert interpolation.error(x, y, 1.0, usual=0.3) == pytest.approx(interpolation.BEND * 0.3 * 2**2 / 8)
    for at in np.linspace(0, 2, 9):  # a curve that rises at once, or at the end
        worst = max(0.5 - np.interp(at, x, y), np.interp(at, x, y) - 0.1)
        assert interpolation.error(x, y, at) == pytest.approx(worst if 0 < at < 2 else 0)
    assert interpolation.error((1.0,), (0.5,), 1.0) == 0


def test_learning_curves_without_noise_are_within_the_error():
    """Power laws with a floor, and logistic curves, over log compute; horizons 1.5 to 4 times apart."""
    rng = np.random.default_rng(1)
    held = []
    for _ in range(400):
        x_N = np.cumsum(np.log(rng.uniform(1.5, 4, rng.integers(3, 7))))
        middle, rate = rng.uniform(x_N[0] - 2, x_N[-1]), rng.uniform(0.2, 1.0)
        logistic = lambda x: 1 / (1 + np.exp(-rate * (x - middle)))  # noqa: B023, E731
        power = lambda x: 0.9 - 0.5 * np.exp(-rate * (x - x_N[0]))  # noqa: B023, E731
        for curve in (logistic, power):
            at = rng.uniform(x_N[0], x_N[-1])
            missed = abs(np.interp(at, x_N, curve(x_N)) - curve(at))
            held.append(missed <= interpolation.error(x_N, curve(x_N), at) + 1e-12)
    print(np.mean(held))
    assert np.mean(held) > 0.9


def test_a_horizon_left_out_is_predicted_within_the_error():
    """Horizons of the reference studies: without one, gaps are twice as wide as those that comparisons interpolate.
    Beside the error of interpolation, the three accuracies have their own."""
    held = []
    for folder in (KEPT / "scaling", KEPT / "crossover"):
        evidence = lr_sweep.of_chosen(study_data.load(folder), headline=("scripts", "mnist", "upstream"))
        for series in evidence.series:
            known = [(math.log(p.train_flops), evidence.estimate(p, "headline")) for p in series.points]
            x = [at for at, e in known if e]
            y = [e.value for _, e in known if e]
            halves = [e.margins.get("training seeds", 0.0) for _, e in known if e]
            for out in range(1, len(x) - 1) if len(x) > 3 else ():
                rest_x, rest_y = x[:out] + x[out + 1 :], y[:out] + y[out + 1 :]
                slack = interpolation.error(rest_x, rest_y, x[out])
                noise = math.hypot(halves[out], halves[out - 1] / 2, halves[out + 1] / 2)
                missed = abs(float(np.interp(x[out], rest_x, rest_y)) - y[out])
                held.append(missed <= math.hypot(slack, noise))
    print(len(held), np.mean(held))
    assert len(held) >= 8 and np.mean(held) >= 0.9
