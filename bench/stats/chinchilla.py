"""Laws of model size and data together: L(N, D), and L(N, D, U) where D samples hold only U distinct ones."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np

from bench.stats.form import Form, Theta, columns, log_sum


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


def _worth(t: Theta, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Samples that D with repeats are worth, as a multiple of U, and its derivative by log R*.

    Muennighoff et al. 2023: U + U R* (1 - exp(-R / R*)), R = D / U - 1 repeats; the value of a repeat decays with R*.
    """
    decay = np.exp(t[5])
    repeats = np.maximum(x[1] / x[2] - 1, 0.0) / decay
    faded = np.exp(-repeats)
    return 1 + decay * (1 - faded), decay * (1 - faded - repeats * faded)


def _repeated_terms(t: Theta, x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    worth, _ = _worth(t, x)
    return t[0] - t[3] * np.log(x[0]), t[1] - t[4] * np.log(x[2] * worth), t[2]


def _repeated_jacobian(t: Theta, x: np.ndarray) -> np.ndarray:
    terms = _repeated_terms(t, x)
    total = log_sum(*terms)
    n, d, e = (np.exp(term - total) for term in terms)
    worth, slope = _worth(t, x)
    return columns(n, d, e, -n * np.log(x[0]), -d * np.log(x[2] * worth), -d * t[4] * slope / worth)


def _repeated_starts(x: np.ndarray, y: np.ndarray) -> Iterator[Theta]:
    for start, decay in product(list(_chinchilla_starts(x[:2], y))[::2], (2.0, 15.0)):
        yield np.append(start, np.log(decay))


REPEATED = Form(
    name="repeated", formula="L = E + A N^-alpha + B D'^-beta, D' = U (1 + R (1 - exp((1 - D/U) / R)))",
    parameters=("A", "B", "E", "alpha", "beta", "R"), inputs=3, scaled_like=(0, 1, 1), starts=_repeated_starts,
    log_predict=lambda t, x: log_sum(*_repeated_terms(t, x)), jacobian=_repeated_jacobian,
    natural=lambda t, s: {**CHINCHILLA.natural(t[:5], s), "R": float(np.exp(t[5]))},
)  # fmt: skip
