"""How often stated 90 % intervals hold the truth, over simulated studies.

A study: families of models x horizons x seeds; every trunk has luck that its horizons share, every point its own.
`python -m tools.measure_fits` runs 200 studies per form; the tests run fewer, with binomial bounds.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq

from bench.laws import bootstrap, fit, forms
from bench.laws.crossing import Crossing, crossing
from bench.laws.extrapolation import forecast

TRUNK_SD, POINT_SD = 0.012, 0.008  # of log error
SPAN = 3000.0
Law = Callable[[np.ndarray], np.ndarray]


def m4(x: float) -> float:
    """(y - .2) / (.95 - y)^.7 = 1.5 x^-.5, by bisection."""
    return brentq(lambda y: np.log(y - 0.2) - 0.7 * np.log(0.95 - y) - np.log(1.5 * x**-0.5), 0.2 + 1e-12, 0.95 - 1e-12)


@dataclass(frozen=True)
class Truth:
    law: Law
    parameters: dict[str, float]


TRUTHS = {
    "power": Truth(lambda x: 2 * x**-0.3, {"b": 2, "c": 0.3}),
    "power-floor": Truth(lambda x: 0.2 + 0.7 * x**-0.4, {"e": 0.2, "b": 0.7, "c": 0.4}),
    "zhai": Truth(lambda x: 0.2 + 0.7 * (x + 3) ** -0.4, {"c": 0.2, "a": 0.7, "d": 3, "b": 0.4}),
    "m3": Truth(lambda x: 0.9 * (1 / x + 0.01) ** 0.3, {"b": 0.9, "g": 0.01, "c": 0.3}),
    "m4": Truth(lambda x: np.array([m4(v) for v in np.atleast_1d(x)]), {"e": 0.2, "c": 0.5}),
    "bnsl1": Truth(lambda x: 0.1 + 0.9 * x**-0.1 * (1 + (x / 40) ** 2) ** -0.15, {"a": 0.1, "c0": 0.1, "c1": 0.3}),
}
FAMILIES = ((3, 3, 2), (4, 4, 3), (5, 5, 3))
"""Models, horizons, seeds."""


def design(models: int, horizons: int, seeds: int) -> tuple[np.ndarray, np.ndarray]:
    """x and trunk of every point: larger models and longer horizons both cost more."""
    size, length = np.geomspace(1, SPAN**0.4, models), np.geomspace(1, SPAN**0.6, horizons)
    x = (size[:, None, None] * np.ones((1, seeds, 1)) * length).reshape(-1)
    return x, np.repeat(np.arange(models * seeds), horizons)


def study(law: Law, family: tuple[int, int, int], rng: np.random.Generator) -> fit.Points:
    """One simulated study."""
    x, trunk = design(*family)
    luck = rng.normal(0, TRUNK_SD, trunk.max() + 1)[trunk] + rng.normal(0, POINT_SD, len(x))
    return fit.Points(x=x[None], y=law(x) * np.exp(luck), cluster=trunk)


def covered(name: str, family: tuple[int, int, int], *, studies: int, draws: int = 200) -> dict[str, float]:
    """Share of studies whose interval holds each parameter, and y at the end of the data and three times beyond."""
    truth, rng = TRUTHS[name], np.random.default_rng(7)
    held: dict[str, list[bool]] = {}
    for number in range(studies):
        data = study(truth.law, family, rng)
        resampled = bootstrap.resample(fit.fit(data, forms.FORMS[name], max_starts=60), draws=draws, seed=number)
        ends = resampled.parameters()
        checks = {key: (*ends[key], value) for key, value in truth.parameters.items()}
        for factor in (1, 3):
            at = np.array([factor * data.x.max()])
            checks[f"y at {factor} x max"] = (
                *resampled.interval(resampled.predictions(at)[:, 0]),
                float(truth.law(at)[0]),
            )
        for key, (low, high, value) in checks.items():
            held.setdefault(key, []).append(low <= value <= high)
    return {key: float(np.mean(values)) for key, values in held.items()}


def beyond(factors: tuple[float, ...], *, studies: int) -> dict[str, list[float]]:
    """By form of the truth: share of studies whose forecast holds y at so many times the largest budget."""
    shares = {}
    for name, truth in TRUTHS.items():
        rng, held = np.random.default_rng(11), []
        for family in FAMILIES[1:]:
            for _ in range(studies):
                data = study(truth.law, family, rng)
                made, at = forecast(data), data.x.max() * np.array([factors])
                missed = np.abs(np.log(truth.law(at[0])) - made.log_predict(at))
                held.append(missed <= [made.half_width(float(np.log(factor))) for factor in factors])
        shares[name] = np.mean(held, axis=0).tolist()
    return shares


def cross(first: Law, second: Law, family: tuple[int, int, int], rng: np.random.Generator) -> Crossing:
    """Two simulated families, and where they cross."""
    made = [
        bootstrap.resample(fit.fit(study(law, family, rng), forms.POWER), draws=200, seed=int(rng.integers(1 << 30)))
        for law in (first, second)
    ]
    return crossing(made[0], made[1])


def crossings(family: tuple[int, int, int], *, studies: int) -> tuple[float, float]:
    """Share of "yes" where lines cross at 60, and share of their intervals that hold it."""
    rng = np.random.default_rng(8)
    laws = (lambda x: 0.5 * (x / 60) ** -0.3), (lambda x: 0.5 * (x / 60) ** -0.15)
    crossed = [cross(*laws, family, rng) for _ in range(studies)]
    told = [c for c in crossed if c.low is not None and c.high is not None]
    return len(told) / studies, float(np.mean([c.low <= 60 <= c.high for c in told if c.low and c.high]))


def silent(family: tuple[int, int, int], *, studies: int, gap: float = 1.01) -> float:
    """Share of "cannot tell" where one family is ahead by `gap` throughout (1: equal families)."""
    rng = np.random.default_rng(9)
    crossed = [cross(lambda x: gap * 0.6 * x**-0.3, lambda x: 0.6 * x**-0.3, family, rng) for _ in range(studies)]
    return sum(c.verdict == "cannot tell" for c in crossed) / studies
