"""The peak of a sweep: a curve whose maximum is known, and how often its interval holds it."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from bench.stats.peak import FALL, Peak, _of_three, between, cut, near_peak, peak, ratio

SWEEPS = 300


def test_a_parabola_and_a_cubic_without_noise_are_found() -> None:
    x = np.arange(5.0)
    found = peak(x, 0.7 - 0.3 * (x - 1.8) ** 2, np.zeros(5))
    assert found is not None and (found.place, found.top) == pytest.approx((1.8, 0.7))
    assert found.at(2.8) == pytest.approx(0.4) and found.low == pytest.approx(1.8, abs=0.01)
    crooked = peak(x, 0.7 - 0.3 * (x - 1.8) ** 2 - 0.05 * (x - 1.8) ** 3, np.zeros(5))
    assert crooked is not None and crooked.place == pytest.approx(1.8)


def test_no_maximum_is_no_peak() -> None:
    x = np.arange(5.0)
    assert peak(x, (x - 2) ** 2, np.zeros(5)) is None
    assert peak(x[:2], x[:2], np.zeros(2)) is None


def test_the_interval_of_a_parabola_is_that_of_fieller() -> None:
    """Written again: the ends are where the slope is t standard errors from zero, in ordinary least squares."""
    rng = np.random.default_rng(7)
    x, seed = np.repeat(np.arange(3.0), 4), np.tile(np.arange(4), 3)
    y = 1 - 0.2 * (x - 1.2) ** 2 + rng.normal(0, 0.05, 4)[seed] + rng.normal(0, 0.03, 12)
    found = peak(x, y, seed)
    design = np.column_stack([x, x**2, *(seed == s for s in range(4))]).astype(float)
    inverse = np.linalg.inv(design.T @ design)
    b = inverse @ design.T @ y
    df = 12 - 6
    cov = inverse[:2, :2] * float(((y - design @ b) ** 2).sum()) / df
    t2 = stats.t.ppf(0.975, df) ** 2
    roots = np.roots(
        [
            4 * b[1] ** 2 - 4 * t2 * cov[1, 1],
            4 * b[0] * b[1] - 4 * t2 * cov[0, 1],
            b[0] ** 2 - t2 * cov[0, 0],
        ]
    )
    assert found is not None and found.df == df
    assert (found.low, found.high) == pytest.approx(sorted(roots.real), abs=2e-3)
    assert found.place == pytest.approx(-b[0] / (2 * b[1]))
    by_b = np.array([-1 / (2 * b[1]), b[0] / (2 * b[1] ** 2)])  # how the peak moves with either coefficient
    assert found.error == pytest.approx(math.sqrt(by_b @ cov @ by_b))


def simulated(fall: float, crooked: float, noise: float, *, seeds: int) -> tuple[float, float]:
    """(share of intervals that hold the place, share that are bounded) of sweeps whose peak lies anywhere inside."""
    rng, held, bounded, known = np.random.default_rng(int(1000 * (fall + noise)) + seeds), 0, 0, 0
    for _ in range(SWEEPS):
        x, place = np.arange(7.0), rng.uniform(1.5, 4.5)
        means = -fall * (x - place) ** 2 - crooked * np.maximum(0, x - place) ** 3
        y = means[:, None] + rng.normal(0, 0.05, seeds) + rng.normal(0, noise, (7, seeds))
        near = list(near_peak(list(y.mean(axis=1))))
        found = peak(np.repeat(x[near], seeds), y[near].ravel(), np.tile(np.arange(seeds), len(near)))
        if found is not None:
            known += 1
            held += found.low <= place <= found.high
            bounded += found.bounded
    return held / known, bounded / known


@pytest.mark.parametrize("seeds, noise", [(2, 0.15), (3, 0.05), (3, 0.15)])
def test_intervals_hold_a_known_peak_as_often_as_they_say(seeds: int, noise: float) -> None:
    """300 sweeps: 95 % less three standard errors at least, and not all of them, which would be too wide."""
    error = math.sqrt(0.95 * 0.05 / SWEEPS)
    held, bounded = simulated(0.25, 0.0, noise, seeds=seeds)
    assert 0.95 - 3 * error <= held <= 0.995 and bounded > 0.8
    assert simulated(0.2, 0.08, noise, seeds=seeds)[0] >= 0.86  # crooked, as a cube on one side


def test_three_readings_bend_about_their_highest() -> None:
    """The parabola through them, as far as its neighbours; where they do not bend down, the highest itself."""
    x = np.arange(4.0)
    assert _of_three(x, [0.0, 1.0, 0.9, 0.0]) == pytest.approx(1 + 0.45 / 1.1)
    assert _of_three(x, [3.0, 1.0, 0.0, 0.0]) == 0.0 and _of_three(x, [0.0, 0.0, 1.0, 3.0]) == 3.0
    assert _of_three(x, [3.0, 2.9, 0.0, 0.0]) == pytest.approx(0.5 - 0.1 / 2.8, abs=1e-9)


def test_a_curve_that_is_flat_is_not_bounded() -> None:
    assert simulated(0.01, 0.0, 0.15, seeds=3)[1] < 0.3


def test_the_readings_near_a_peak_end_at_what_is_unknown_or_far_below() -> None:
    assert list(near_peak([0.0, 1.0, 2.0, 1.5, math.nan, 3.0 - 4])) == [0, 1, 2, 3]
    assert list(near_peak([-9.0, 1.0, 2.0, -7.0, -9.0])) == [1, 2, 3]
    assert list(near_peak([2.0, 1.0, 0.0, -1.0])) == [0, 1, 2]
    assert list(near_peak([FALL, 0.5 * FALL, 0.0])) == [0, 1, 2], "exactly as far below counts"
    assert list(near_peak([0.0, -0.5 * FALL, -FALL * 1.01])) == [0, 1]


def test_a_peak_lies_between_places_that_are_lower_by_more_than_chance() -> None:
    """The bounds hold the place of simulated peaks of any form as often as they say, and see what a curve about the
    peak leaves out."""
    rng, outside, bounded = np.random.default_rng(3), 0, 0
    for _ in range(SWEEPS):
        place = rng.uniform(1.5, 5.5)
        means = -np.where(np.arange(8) < place, 0.3, 1.5) * np.abs(np.arange(8) - place)  # a roof, steep on one side
        y = means[:, None] + rng.normal(0, 0.3, 3) + rng.normal(0, 0.15, (8, 3))
        low, high = between(np.repeat(np.arange(8.0), 3), y.ravel(), np.tile(np.arange(3), 8))
        outside += not low <= place <= high
        bounded += math.isfinite(low) and math.isfinite(high)
    assert outside / SWEEPS <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / SWEEPS) and bounded > 0.5 * SWEEPS
    assert between([0, 1, 2], [0, 1, 0], [0, 0, 0]) == (-math.inf, math.inf), "one seed has no noise to compare with"


def test_an_interval_is_cut_at_such_places_and_keeps_its_peak() -> None:
    x = np.arange(5.0)
    found = peak(x, 0.7 - 0.3 * (x - 1.8) ** 2, np.zeros(5))
    assert found is not None
    open_ended = replace(found, low=-math.inf, high=math.inf)
    assert (cut(open_ended, (1.0, 4.0)).low, cut(open_ended, (1.0, 4.0)).high) == (1.0, 4.0)
    assert cut(found, (-math.inf, math.inf)) == found
    assert cut(open_ended, (2.0, 4.0)).low == found.place


def test_a_difference_of_two_means_is_judged_as_in_an_analysis_of_variance() -> None:
    """The error of a difference is that of two-way analysis of variance without interaction."""
    y = np.array([[0.0, 1.0, 0.4], [2.0, 3.1, 2.4], [1.2, 1.9, 1.7]])  # places x seeds
    mean = y - y.mean(axis=1, keepdims=True) - y.mean(axis=0) + y.mean()
    error = math.sqrt((mean**2).sum() / 4 * 2 / 3)
    gaps = y.mean(axis=1)[1] - y.mean(axis=1)
    for level in (0.5, 0.95, 0.999, 0.99999):
        t = stats.t.ppf(1 - (1 - level) / 4, 4)
        expected = tuple(
            place if gap > t * error else end
            for place, gap, end in ((0.0, gaps[0], -math.inf), (2.0, gaps[2], math.inf))
        )
        assert between(np.repeat([0.0, 1.0, 2.0], 3), y.ravel(), np.tile([0, 1, 2], 3), level=level) == expected


def test_the_ratio_of_two_places_holds_both_intervals() -> None:
    def at(place: float, half: float) -> Peak:
        return Peak(
            place=place,
            top=0.0,
            shape=(0.0, -1.0),
            centre=place,
            low=place - half,
            high=place + half,
            error=half / 2,
            df=9,
            misfit=False,
        )

    assert ratio(at(1.0, 0.3), at(3.0, 0.4)) == pytest.approx((-2.0, -2.5, -1.5))
    assert ratio(at(1.0, math.inf), at(3.0, 0.4))[1:] == (-math.inf, math.inf)
