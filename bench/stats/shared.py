"""One law for two families that differ by a factor on compute: how much more the second needs for the same error.

The second input is 1 for the first family and e for the second, so that its logarithm counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np

from bench.stats.form import Form, Theta, columns, floors, log_line, log_sum

FIRST, SECOND = 1.0, float(np.e)


def _lead(t: Theta, x: np.ndarray) -> np.ndarray:
    """log of compute that counts: the second family's is divided by k = exp(t[2])."""
    return np.log(x[0]) - t[2] * np.log(x[1])


def _starts(x: np.ndarray, y: np.ndarray) -> Iterator[Theta]:
    intercept, slope = log_line(x, y)
    for factor, k in product((0.5, 1.0, 2.0), (-1.5, -0.5, 0.5, 1.5)):
        yield np.array([intercept, max(0.02, -slope) * factor, k])


SHARED = Form(
    name="shared-power", formula="y = b (x / k^family)^-c", parameters=("b", "c", "k"), inputs=2, starts=_starts,
    log_predict=lambda t, x: t[0] - t[1] * _lead(t, x),
    jacobian=lambda t, x: columns(np.ones_like(x[0]), -_lead(t, x), t[1] * np.log(x[1])),
    natural=lambda t, s: {"b": float(np.exp(t[0] + t[1] * (np.log(s[0]) - t[2] * np.log(s[1])))), "c": float(t[1]),
                          "k": float(np.exp(t[2]))},
)  # fmt: skip


def _floor_starts(x: np.ndarray, y: np.ndarray) -> Iterator[Theta]:
    for floor, c, k in product(floors(y)[1:], (0.15, 0.4, 1.0), (-1.5, -0.5, 0.5, 1.5)):
        rest = np.maximum(y - np.exp(floor), 1e-3 * y)
        lead = np.log(x[0]) - k * np.log(x[1])
        yield np.array([floor, float(np.mean(np.log(rest) + c * lead)), np.log(c), k])


def _tail(t: Theta, x: np.ndarray) -> np.ndarray:
    return t[1] - np.exp(t[2]) * _lead(t[1:], x)


def _floor_jacobian(t: Theta, x: np.ndarray) -> np.ndarray:
    c, tail = np.exp(t[2]), _tail(t, x)
    weight = np.exp(tail - log_sum(t[0], tail))
    return columns(1 - weight, weight, -weight * c * _lead(t[1:], x), weight * c * np.log(x[1]))


SHARED_FLOOR = Form(
    name="shared-power-floor", formula="y = e + b (x / k^family)^-c", parameters=("e", "b", "c", "k"), inputs=2,
    starts=_floor_starts, log_predict=lambda t, x: log_sum(t[0], _tail(t, x)), jacobian=_floor_jacobian,
    natural=lambda t, s: {"e": float(np.exp(t[0])),
                          "b": float(np.exp(t[1] + np.exp(t[2]) * (np.log(s[0]) - t[3] * np.log(s[1])))),
                          "c": float(np.exp(t[2])), "k": float(np.exp(t[3]))},
)  # fmt: skip
