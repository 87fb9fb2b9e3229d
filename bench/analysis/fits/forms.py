"""Functional forms of scaling laws, as the logarithm of the full prediction.

Fitting log(prediction) is well-posed; fitting log(y - floor) is not: its global minimum is often floor = 0. Every
positive parameter is fitted as its logarithm, so no constraint can be violated.

A form computes one curve (theta of shape (p,), x of shape (inputs, n)) or a batch of them (theta (p, batch, 1)): it
indexes theta by its first axis and leaves the rest to broadcasting.

x is divided by `scale` (the geometric mean of the data) before a form sees it; `natural` gives parameters in the
user's units back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product

import numpy as np

Theta = np.ndarray


@dataclass(frozen=True, kw_only=True)
class Form:
    """A law y = f(x).

    Attributes:
        name, formula: as printed. `parameters` are the natural names, in the order of theta.
        log_predict: (theta, x) -> log y, shape (n,) or (batch, n).
        jacobian: the same -> (..., n, parameters); None for finite differences.
        starts: (x, y) -> starting points, a grid.
        natural: (theta, scale per input) -> parameters in the user's units.
        inputs: number of independent variables.
    """

    name: str
    formula: str
    parameters: tuple[str, ...]
    log_predict: Callable[[Theta, np.ndarray], np.ndarray]
    starts: Callable[[np.ndarray, np.ndarray], Iterator[Theta]]
    natural: Callable[[Theta, np.ndarray], Mapping[str, float]]
    jacobian: Callable[[Theta, np.ndarray], np.ndarray] | None = None
    inputs: int = 1

    @property
    def size(self) -> int:
        return len(self.parameters)


def log_sum(*terms: np.ndarray) -> np.ndarray:
    """log of a sum of exponentials, without overflow."""
    stacked = np.stack(np.broadcast_arrays(*terms))
    top = stacked.max(axis=0)
    return top + np.log(np.exp(stacked - top).sum(axis=0))


def columns(*derivatives: np.ndarray) -> np.ndarray:
    """Derivatives by parameter, along a new last axis."""
    return np.stack(np.broadcast_arrays(*derivatives), axis=-1)


def _slope(x: np.ndarray, y: np.ndarray) -> tuple[float, float]:
    """Least-squares line through (log x, log y): intercept, slope."""
    lx, ly = np.log(x[0]), np.log(y)
    slope = float(np.cov(lx, ly, bias=True)[0, 1] / max(float(lx.var()), 1e-12))
    return float(ly.mean() - slope * lx.mean()), slope


def _power_starts(x: np.ndarray, y: np.ndarray) -> Iterator[Theta]:
    intercept, slope = _slope(x, y)
    for factor in (0.5, 1.0, 2.0):
        yield np.array([intercept, max(1e-3, -slope) * factor])


POWER = Form(
    name="power", formula="y = b x^-c", parameters=("b", "c"), starts=_power_starts,
    log_predict=lambda t, x: t[0] - t[1] * np.log(x[0]),
    jacobian=lambda t, x: columns(np.ones_like(x[0]), -np.log(x[0]) + 0 * t[0]),
    natural=lambda t, s: {"b": float(np.exp(t[0] + t[1] * np.log(s[0]))), "c": float(t[1])},
)  # fmt: skip


def _floors(y: np.ndarray) -> tuple[float, ...]:
    """Starting floors: fractions of the smallest value, down to practically none."""
    return tuple(float(np.log(y.min() * f)) for f in (0.001, 0.3, 0.7, 0.9, 0.98))


def _floor_starts(x: np.ndarray, y: np.ndarray) -> Iterator[Theta]:
    _, slope = _slope(x, y)
    for floor, c in product(_floors(y), (0.05, 0.15, 0.3, 0.6, 1.2, max(0.01, -slope))):
        rest = np.maximum(y - np.exp(floor), 1e-3 * y)
        yield np.array([floor, float(np.mean(np.log(rest) + c * np.log(x[0]))), np.log(c)])


def _floor_jacobian(t: Theta, x: np.ndarray) -> np.ndarray:
    c = np.exp(t[2])
    tail = t[1] - c * np.log(x[0])
    weight = np.exp(tail - log_sum(t[0], tail))
    return columns(1 - weight, weight, -weight * c * np.log(x[0]))


POWER_FLOOR = Form(
    name="power-floor", formula="y = e + b x^-c", parameters=("e", "b", "c"), starts=_floor_starts,
    log_predict=lambda t, x: log_sum(t[0], t[1] - np.exp(t[2]) * np.log(x[0])),
    jacobian=_floor_jacobian,
    natural=lambda t, s: {"e": float(np.exp(t[0])), "b": float(np.exp(t[1] + np.exp(t[2]) * np.log(s[0]))),
                          "c": float(np.exp(t[2]))},
)  # fmt: skip


def _zhai_starts(x: np.ndarray, y: np.ndarray) -> Iterator[Theta]:
    for floor, shift, b in product(_floors(y), (0.01, 0.3, 1.0, 3.0), (0.1, 0.3, 0.6, 1.2)):
        d = shift * float(np.median(x[0]))
        rest = np.maximum(y - np.exp(floor), 1e-3 * y)
        yield np.array([floor, float(np.mean(np.log(rest) + b * np.log(x[0] + d))), np.log(d), np.log(b)])


def _zhai_jacobian(t: Theta, x: np.ndarray) -> np.ndarray:
    d, b = np.exp(t[2]), np.exp(t[3])
    tail = t[1] - b * np.log(x[0] + d)
    weight = np.exp(tail - log_sum(t[0], tail))
    return columns(1 - weight, weight, -weight * b * d / (x[0] + d), -weight * b * np.log(x[0] + d))


ZHAI = Form(
    name="zhai", formula="y = c + a (x + d)^-b", parameters=("c", "a", "d", "b"), starts=_zhai_starts,
    log_predict=lambda t, x: log_sum(
        t[0], t[1] - np.exp(t[3]) * np.log(x[0] + np.exp(t[2]))
    ),
    jacobian=_zhai_jacobian,
    natural=lambda t, s: {"c": float(np.exp(t[0])), "a": float(np.exp(t[1] + np.exp(t[3]) * np.log(s[0]))),
                          "d": float(np.exp(t[2]) * s[0]), "b": float(np.exp(t[3]))},
)  # fmt: skip


def _m3_starts(x: np.ndarray, y: np.ndarray) -> Iterator[Theta]:
    for g, c in product((1e-3, 0.03, 0.3, 1.0, 3.0), (0.1, 0.3, 0.6, 1.2)):
        scaled = g / float(np.median(x[0]))
        yield np.array([float(np.mean(np.log(y) - c * np.log(1 / x[0] + scaled))), np.log(scaled), np.log(c)])


def _m3_jacobian(t: Theta, x: np.ndarray) -> np.ndarray:
    g, c = np.exp(t[1]), np.exp(t[2])
    base = 1 / x[0] + g
    return columns(np.ones_like(base), c * g / base, c * np.log(base))


M3 = Form(
    name="m3", formula="y = b (1/x + g)^c", parameters=("b", "g", "c"), starts=_m3_starts,
    log_predict=lambda t, x: t[0] + np.exp(t[2]) * np.log(1 / x[0] + np.exp(t[1])),
    jacobian=_m3_jacobian,
    natural=lambda t, s: {"b": float(np.exp(t[0] + np.exp(t[2]) * np.log(s[0]))), "g": float(np.exp(t[1]) / s[0]),
                          "c": float(np.exp(t[2]))},
)  # fmt: skip


def _break_starts(x: np.ndarray, y: np.ndarray) -> Iterator[Theta]:
    intercept, slope = _slope(x, y)
    for floor, d, c0, extra in product(_floors(y)[:3], (0.1, 1.0, 10.0), (0.5, 1.0), (-0.2, 0.1, 0.5)):
        start = max(0.02, -slope) * c0
        yield np.array([floor, intercept, start, extra, np.log(d * float(np.median(x[0]))), np.log(0.3)])


def _break_predict(t: Theta, x: np.ndarray) -> np.ndarray:
    f = np.exp(np.clip(t[5], -6.0, 6.0))  # a sharper bend than this cannot be told from a corner
    bend = np.logaddexp(0.0, (np.log(x[0]) - t[4]) / f)
    return log_sum(t[0], t[1] - t[2] * np.log(x[0]) - t[3] * f * bend)


BROKEN = Form(
    name="bnsl1", formula="y = a + b x^-c0 (1 + (x/d)^(1/f))^(-c1 f)", parameters=("a", "b", "c0", "c1", "d", "f"),
    starts=_break_starts, log_predict=_break_predict,
    natural=lambda t, s: {"a": float(np.exp(t[0])), "b": float(np.exp(t[1] + t[2] * np.log(s[0]))), "c0": float(t[2]),
                          "c1": float(t[3]), "d": float(np.exp(t[4]) * s[0]), "f": float(np.exp(t[5]))},
)  # fmt: skip


def _chinchilla_starts(x: np.ndarray, y: np.ndarray) -> Iterator[Theta]:
    for alpha, beta, a, b, e in product((0.2, 0.5, 1.0), (0.2, 0.5, 1.0), (-3.0, -1.0, 0.0), (-3.0, -1.0, 0.0),
                                        (0.3, 0.8)):  # fmt: skip
        low = float(np.log(y.min()))
        yield np.array([low + a, low + b, low + np.log(e), alpha, beta])


def _chinchilla_terms(t: Theta, x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return t[0] - t[3] * np.log(x[0]), t[1] - t[4] * np.log(x[1]), t[2]


def _chinchilla_jacobian(t: Theta, x: np.ndarray) -> np.ndarray:
    terms = _chinchilla_terms(t, x)
    total = log_sum(*terms)
    n, d, e = (np.exp(term - total) for term in terms)
    return columns(n, d, e, -n * np.log(x[0]), -d * np.log(x[1]))


CHINCHILLA = Form(
    name="chinchilla", formula="L = E + A N^-alpha + B D^-beta", parameters=("A", "B", "E", "alpha", "beta"), inputs=2,
    starts=_chinchilla_starts, log_predict=lambda t, x: log_sum(*_chinchilla_terms(t, x)),
    jacobian=_chinchilla_jacobian,
    natural=lambda t, s: {"A": float(np.exp(t[0] + t[3] * np.log(s[0]))), "alpha": float(t[3]),
                          "B": float(np.exp(t[1] + t[4] * np.log(s[1]))), "beta": float(t[4]),
                          "E": float(np.exp(t[2]))},
)  # fmt: skip

CURVES = (POWER, POWER_FLOOR, ZHAI, M3, BROKEN)
"""Laws of one variable, simplest first."""
FORMS = {form.name: form for form in (*CURVES, CHINCHILLA)}
