"""Laws of one variable that scaling studies use, and the registry of all forms (form.py says what forms share)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np

from bench.stats.chinchilla import CHINCHILLA, REPEATED
from bench.stats.form import Form, Theta, columns, floors, log_line, log_sum
from bench.stats.sigmoid import SIGMOID


def _power_starts(x: np.ndarray, y: np.ndarray) -> Iterator[Theta]:
    intercept, slope = log_line(x, y)
    for factor in (0.5, 1.0, 2.0):
        yield np.array([intercept, max(1e-3, -slope) * factor])


POWER = Form(
    name="power", formula="y = b x^-c", parameters=("b", "c"), starts=_power_starts,
    log_predict=lambda t, x: t[0] - t[1] * np.log(x[0]),
    jacobian=lambda t, x: columns(np.ones_like(x[0]), -np.log(x[0]) + 0 * t[0]),
    natural=lambda t, s: {"b": float(np.exp(t[0] + t[1] * np.log(s[0]))), "c": float(t[1])},
)  # fmt: skip


def _floor_starts(x: np.ndarray, y: np.ndarray) -> Iterator[Theta]:
    _, slope = log_line(x, y)
    for floor, c in product(floors(y), (0.05, 0.15, 0.3, 0.6, 1.2, max(0.01, -slope))):
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
    for floor, shift, b in product(floors(y), (0.01, 0.3, 1.0, 3.0), (0.1, 0.3, 0.6, 1.2)):
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
    intercept, slope = log_line(x, y)
    for floor, d, c0, extra in product(floors(y)[:3], (0.1, 1.0, 10.0), (0.5, 1.0), (-0.2, 0.1, 0.5)):
        start = max(0.02, -slope) * c0
        yield np.array([floor, intercept, start, extra, np.log(d * float(np.median(x[0]))), np.log(0.3)])


def _break_predict(t: Theta, x: np.ndarray) -> np.ndarray:
    f = np.exp(np.clip(t[5], -6.0, 6.0))  # a sharper bend than this cannot be told from a corner
    bend = np.logaddexp(0.0, (np.log(x[0]) - t[4]) / f)
    return log_sum(t[0], t[1] - t[2] * np.log(x[0]) - t[3] * f * bend)


def _break_jacobian(t: Theta, x: np.ndarray) -> np.ndarray:
    f = np.exp(np.clip(t[5], -6.0, 6.0))
    z = (np.log(x[0]) - t[4]) / f
    bend = np.logaddexp(0.0, z)
    turned = np.exp(-np.logaddexp(0.0, -z))
    tail = t[1] - t[2] * np.log(x[0]) - t[3] * f * bend
    weight = np.exp(tail - log_sum(t[0], tail))
    by_f = np.where(np.abs(t[5]) < 6.0, -weight * t[3] * f * (bend - z * turned), 0.0)
    return columns(
        1 - weight, weight, -weight * np.log(x[0]), -weight * f * bend, weight * t[3] * turned, by_f
    )


BROKEN = Form(
    name="bnsl1", formula="y = a + b x^-c0 (1 + (x/d)^(1/f))^(-c1 f)", parameters=("a", "b", "c0", "c1", "d", "f"),
    starts=_break_starts, log_predict=_break_predict, jacobian=_break_jacobian,
    natural=lambda t, s: {"a": float(np.exp(t[0])), "b": float(np.exp(t[1] + t[2] * np.log(s[0]))), "c0": float(t[2]),
                          "c1": float(t[3]), "d": float(np.exp(t[4]) * s[0]), "f": float(np.exp(t[5]))},
)  # fmt: skip


CURVES = (POWER, POWER_FLOOR, ZHAI, M3, SIGMOID, BROKEN)
"""Laws of one variable, simplest first."""
FORMS = {form.name: form for form in (*CURVES, CHINCHILLA, REPEATED)}
