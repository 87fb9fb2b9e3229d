"""What a functional form is, and what forms share.

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
from functools import reduce

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
        scaled_like: for each input, the input whose scale it shares; () where each has its own.
    """

    name: str
    formula: str
    parameters: tuple[str, ...]
    log_predict: Callable[[Theta, np.ndarray], np.ndarray]
    starts: Callable[[np.ndarray, np.ndarray], Iterator[Theta]]
    natural: Callable[[Theta, np.ndarray], Mapping[str, float]]
    jacobian: Callable[[Theta, np.ndarray], np.ndarray] | None = None
    inputs: int = 1
    scaled_like: tuple[int, ...] = ()

    @property
    def size(self) -> int:
        return len(self.parameters)


def log_sum(*terms: np.ndarray) -> np.ndarray:
    """log of a sum of exponentials, without overflow."""
    top = reduce(np.maximum, terms)
    return top + np.log(sum(np.exp(term - top) for term in terms))


def columns(*derivatives: np.ndarray) -> np.ndarray:
    """Derivatives by parameter, along a new last axis."""
    found = np.empty((*np.broadcast_shapes(*(np.shape(d) for d in derivatives)), len(derivatives)))
    for number, derivative in enumerate(derivatives):
        found[..., number] = derivative
    return found


def log_line(x: np.ndarray, y: np.ndarray) -> tuple[float, float]:
    """Least-squares line through (log x, log y): intercept, slope."""
    lx, ly = np.log(x[0]), np.log(y)
    slope = float(np.cov(lx, ly, bias=True)[0, 1] / max(float(lx.var()), 1e-12))
    return float(ly.mean() - slope * lx.mean()), slope


def floors(y: np.ndarray) -> tuple[float, ...]:
    """Starting floors: fractions of the smallest value, down to practically none."""
    return tuple(float(np.log(y.min() * f)) for f in (0.001, 0.3, 0.7, 0.9, 0.98))
