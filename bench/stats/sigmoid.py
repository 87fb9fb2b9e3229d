"""M4 (Alabdulmohsin et al. 2022): from chance to the floor, (y - e) / (e0 - y)^a = b x^-c, solved for y.

With w = e0 - e and y = e + w s(u), s the logistic function, it reads h(u) = log s(u) - a log s(-u) = t. h increases and
bends one way only, so Newton's method converges from anywhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np

from bench.stats.form import Form, Theta, columns, floors

NEWTON_STEPS = 60
CONVERGED = 1e-7  # of a step: the error it leaves is of the order of its square


def _solve(t: Theta, x: np.ndarray) -> np.ndarray:
    """u at every x."""
    a = np.exp(np.clip(t[3], -12.0, 6.0))
    wanted = t[2] - np.exp(t[4]) * np.log(x[0]) - (1 - a) * t[1]
    wanted, a = np.broadcast_arrays(wanted, a)
    u = np.where(wanted < 0, wanted, wanted / np.maximum(a, 1.0))
    for _ in range(NEWTON_STEPS):
        small = np.exp(-np.abs(u))
        rest = np.log1p(small)  # log(1 + e^u) = max(u, 0) + rest, and log(1 + e^-u) = max(-u, 0) + rest
        gap = np.minimum(u, 0) - rest + a * (np.maximum(u, 0) + rest) - wanted
        logistic = np.where(u > 0, 1.0, small) / (1 + small)
        step = gap / (1 - logistic + a * logistic)
        u = u - step
        if not np.any(np.abs(step) >= CONVERGED * (1 + np.abs(u))):  # what is no number will not become one
            break
    return u


def _steepness(u: np.ndarray, a: np.ndarray) -> np.ndarray:
    """h'(u) = s(-u) + a s(u)."""
    s = _logistic(u)
    return 1 - s + a * s


def _logistic(u: np.ndarray) -> np.ndarray:
    return np.exp(-np.logaddexp(0, -u))


def _log_predict(t: Theta, x: np.ndarray) -> np.ndarray:
    return np.logaddexp(t[0], t[1] - np.logaddexp(0, -_solve(t, x)))


def _jacobian(t: Theta, x: np.ndarray) -> np.ndarray:
    u, a = _solve(t, x), np.exp(np.clip(t[3], -12.0, 6.0))
    w, s, c = np.exp(t[1]), _logistic(u), np.exp(t[4])
    y = np.exp(t[0]) + w * s
    moved = w * s * (1 - s) / _steepness(u, a)  # dy / dt
    by_a = moved * a * (t[1] - np.logaddexp(0, u))
    return columns(np.exp(t[0]) / y, (w * s - moved * (1 - a)) / y, moved / y, by_a / y, -moved * c * np.log(x[0]) / y)


def _starts(x: np.ndarray, y: np.ndarray) -> Iterator[Theta]:
    for floor, top, a, c in product(floors(y)[:4], (1.02, 1.5, 5.0), (0.1, 0.6, 1.5), (0.1, 0.3, 0.6, 1.2)):
        e0 = top * float(y.max())
        odds = np.log(np.maximum(y - np.exp(floor), 1e-3 * y)) - a * np.log(e0 - y)
        b = float(np.mean(odds + c * np.log(x[0])))
        yield np.array([floor, np.log(e0 - np.exp(floor)), b, np.log(a), np.log(c)])


SIGMOID = Form(
    name="m4", formula="(y - e) / (e0 - y)^a = b x^-c", parameters=("e", "e0", "b", "a", "c"),
    starts=_starts, log_predict=_log_predict, jacobian=_jacobian,
    natural=lambda t, s: {"e": float(np.exp(t[0])), "e0": float(np.exp(t[0]) + np.exp(t[1])),
                          "b": float(np.exp(t[2] + np.exp(t[4]) * np.log(s[0]))), "a": float(np.exp(t[3])),
                          "c": float(np.exp(t[4]))},
)  # fmt: skip
