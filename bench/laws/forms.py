"""Functional forms of scaling laws: y falls with compute, or with model size and data.

Fitting log(prediction) is well-posed; fitting log(y - floor) is not: its global minimum is often floor = 0. Every
positive parameter is fitted as its logarithm, so no constraint can be violated.

A form's internal parameters are one array, theta. A form computes one curve (theta of shape (p,), x of shape (inputs,
n)) or a batch of them (theta (p, batch, 1)): it indexes theta by its first axis and leaves the rest to broadcasting. x
is divided by `scale` (the geometric mean of the data) before it is passed to a form; `natural` converts theta back to
parameters in the user's units.

Sources: power with floor, Hoffmann et al. 2022 (arXiv 2203.15556); zhai, Zhai et al. 2021 (2106.04560); m3 and m4,
Alabdulmohsin et al. 2022 (2209.06640); bnsl1, Caballero et al. 2022 (2210.14891); repeated, Muennighoff et al. 2023
(2305.16264).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from itertools import product

import numpy as np

Theta = np.ndarray


@dataclass(frozen=True, kw_only=True)
class Form:
    """The functional form of a law y = f(x), with what a fit needs. `theta` are its internal parameters, the positive
    ones as logarithms; its natural parameters are those of `formula`, in the user's units.

    Attributes:
        name, formula: name and formula as printed.
        parameters: names of the parameters, in the order of theta.
        log_predict: (theta, x) -> log y, shape (n,) or (batch, n).
        jacobian: (theta, x) -> derivatives of log y by theta, (..., n, parameters).
        starts: (x, y) -> a grid of starting points for theta.
        natural: (theta, scale per input) -> natural parameters by name.
        inputs: number of independent variables.
        scaled_like: for each input, the input whose scale it shares; () where each has its own.
        limit: natural parameters -> limit of y as x goes to infinity. None for a form without one.
        decay: natural parameters -> exponent with which y - limit falls as x goes to infinity; None where that is 1 for
            all parameters (m3) or lies behind a break. `limit` and `decay` make different forms comparable.
    """

    name: str
    formula: str
    parameters: tuple[str, ...]
    log_predict: Callable[[Theta, np.ndarray], np.ndarray]
    jacobian: Callable[[Theta, np.ndarray], np.ndarray]
    starts: Callable[[np.ndarray, np.ndarray], Iterator[Theta]]
    natural: Callable[[Theta, np.ndarray], Mapping[str, float]]
    inputs: int = 1
    scaled_like: tuple[int, ...] = ()
    limit: Callable[[Mapping[str, float]], float] | None = None
    decay: Callable[[Mapping[str, float]], float] | None = None

    @property
    def size(self) -> int:
        return len(self.parameters)


def log_sum(*terms: np.ndarray) -> np.ndarray:
    """Return log(exp(a) + exp(b) + …) of the terms a, b, …, computed without overflow."""
    top = reduce(np.maximum, terms)
    return top + np.log(sum(np.exp(term - top) for term in terms))


def columns(*derivatives: np.ndarray) -> np.ndarray:
    """Stack derivatives, one array for each parameter, along a new last axis."""
    side_by_side = np.empty((*np.broadcast_shapes(*(np.shape(d) for d in derivatives)), len(derivatives)))
    for number, derivative in enumerate(derivatives):
        side_by_side[..., number] = derivative
    return side_by_side


def log_line(x: np.ndarray, y: np.ndarray) -> tuple[float, float]:
    """Return (intercept, slope) of the least-squares line through (log x, log y), where x is the first input of x
    (inputs, n)."""
    lx, ly = np.log(x[0]), np.log(y)
    slope = float(np.cov(lx, ly, bias=True)[0, 1] / max(float(lx.var()), 1e-12))
    return float(ly.mean() - slope * lx.mean()), slope


def floors(y: np.ndarray) -> tuple[float, ...]:
    """Return starting values for the log of a floor: fractions of the smallest y, down to practically 0."""
    return tuple(float(np.log(y.min() * f)) for f in (0.001, 0.3, 0.7, 0.9, 0.98))


def _power_starts(x: np.ndarray, y: np.ndarray) -> Iterator[Theta]:
    intercept, slope = log_line(x, y)
    for factor in (0.5, 1.0, 2.0):
        yield np.array([intercept, max(1e-3, -slope) * factor])


POWER = Form(
    name="power",
    formula="y = b x^-c",
    parameters=("b", "c"),
    starts=_power_starts,
    log_predict=lambda t, x: t[0] - t[1] * np.log(x[0]),
    jacobian=lambda t, x: columns(np.ones_like(x[0]), -np.log(x[0]) + 0 * t[0]),
    natural=lambda t, s: {"b": float(np.exp(t[0] + t[1] * np.log(s[0]))), "c": float(t[1])},
    limit=lambda p: 0.0,
    decay=lambda p: p["c"],
)


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
    name="power-floor",
    formula="y = e + b x^-c",
    parameters=("e", "b", "c"),
    starts=_floor_starts,
    log_predict=lambda t, x: log_sum(t[0], t[1] - np.exp(t[2]) * np.log(x[0])),
    jacobian=_floor_jacobian,
    natural=lambda t, s: {
        "e": float(np.exp(t[0])),
        "b": float(np.exp(t[1] + np.exp(t[2]) * np.log(s[0]))),
        "c": float(np.exp(t[2])),
    },
    limit=lambda p: p["e"],
    decay=lambda p: p["c"],
)


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
    name="zhai",
    formula="y = c + a (x + d)^-b",
    parameters=("c", "a", "d", "b"),
    starts=_zhai_starts,
    log_predict=lambda t, x: log_sum(t[0], t[1] - np.exp(t[3]) * np.log(x[0] + np.exp(t[2]))),
    jacobian=_zhai_jacobian,
    natural=lambda t, s: {
        "c": float(np.exp(t[0])),
        "a": float(np.exp(t[1] + np.exp(t[3]) * np.log(s[0]))),
        "d": float(np.exp(t[2]) * s[0]),
        "b": float(np.exp(t[3])),
    },
    limit=lambda p: p["c"],
    decay=lambda p: p["b"],
)


def _m3_starts(x: np.ndarray, y: np.ndarray) -> Iterator[Theta]:
    for g, c in product((1e-3, 0.03, 0.3, 1.0, 3.0), (0.1, 0.3, 0.6, 1.2)):
        scaled = g / float(np.median(x[0]))
        yield np.array([float(np.mean(np.log(y) - c * np.log(1 / x[0] + scaled))), np.log(scaled), np.log(c)])


def _m3_jacobian(t: Theta, x: np.ndarray) -> np.ndarray:
    g, c = np.exp(t[1]), np.exp(t[2])
    base = 1 / x[0] + g
    return columns(np.ones_like(base), c * g / base, c * np.log(base))


M3 = Form(
    name="m3",
    formula="y = b (1/x + g)^c",
    parameters=("b", "g", "c"),
    starts=_m3_starts,
    log_predict=lambda t, x: t[0] + np.exp(t[2]) * np.log(1 / x[0] + np.exp(t[1])),
    jacobian=_m3_jacobian,
    natural=lambda t, s: {
        "b": float(np.exp(t[0] + np.exp(t[2]) * np.log(s[0]))),
        "g": float(np.exp(t[1]) / s[0]),
        "c": float(np.exp(t[2])),
    },
    limit=lambda p: float(np.exp(np.log(p["b"]) + p["c"] * np.log(p["g"]))),  # a factor alone may overflow or underflow
)


NEWTON_STEPS = 60
NEWTON_RTOL = 1e-7  # relative size of the last step; the error that remains is of the order of its square
NEWTON_TOGETHER = 2  # steps that are made for all x; half of them have converged by then, and only the rest go on


def _m4_solve(t: Theta, x: np.ndarray) -> np.ndarray:
    """Return u, which gives y of the law M4, at every x. With w = e0 - e and y = e + w s(u), where s is the logistic
    function, the law becomes h(u) = z, with h(u) = log s(u) - a log s(-u) and z a function of x. It is solved by
    Newton's method, which converges from any start, because h increases and its curvature has one sign."""
    a = np.exp(np.clip(t[3], -12.0, 6.0))
    wanted = t[2] - np.exp(t[4]) * np.log(x[0]) - (1 - a) * t[1]
    shape = np.broadcast_shapes(np.shape(wanted), np.shape(a))
    wanted, a = (np.broadcast_to(value, shape).ravel() for value in (wanted, a))
    solved = np.where(wanted < 0, wanted, wanted / np.maximum(a, 1.0))
    u, left = solved, None
    for number in range(NEWTON_STEPS):
        small = np.exp(-np.abs(u))
        rest = np.log1p(small)  # log(1 + e^u) = max(u, 0) + rest, and log(1 + e^-u) = max(-u, 0) + rest
        gap = np.minimum(u, 0) - rest + a * (np.maximum(u, 0) + rest) - wanted
        logistic = np.where(u > 0, 1.0, small) / (1 + small)
        step = gap / (1 - logistic + a * logistic)
        u = u - step
        if left is None:
            solved = u
        else:
            solved[left] = u
        if number + 1 < NEWTON_TOGETHER:
            continue
        moving = np.abs(step) >= NEWTON_RTOL * (1 + np.abs(u))  # False for NaN, which would never converge
        if not moving.any():
            break
        left = np.flatnonzero(moving) if left is None else left[moving]
        u, a, wanted = u[moving], a[moving], wanted[moving]
    return solved.reshape(shape)


def _m4_predict(t: Theta, x: np.ndarray) -> np.ndarray:
    return np.logaddexp(t[0], t[1] - np.logaddexp(0, -_m4_solve(t, x)))


def _m4_jacobian(t: Theta, x: np.ndarray) -> np.ndarray:
    u, a = _m4_solve(t, x), np.exp(np.clip(t[3], -12.0, 6.0))
    w, s, c = np.exp(t[1]), np.exp(-np.logaddexp(0, -u)), np.exp(t[4])
    y = np.exp(t[0]) + w * s
    moved = w * s * (1 - s) / (1 - s + a * s)  # dy / dz of `_m4_solve`, by h'(u) = s(-u) + a s(u)
    by_a = moved * a * (t[1] - np.logaddexp(0, u))
    return columns(np.exp(t[0]) / y, (w * s - moved * (1 - a)) / y, moved / y, by_a / y, -moved * c * np.log(x[0]) / y)


def _m4_starts(x: np.ndarray, y: np.ndarray) -> Iterator[Theta]:
    for floor, top, a, c in product(floors(y)[:4], (1.02, 1.5, 5.0), (0.1, 0.6, 1.5), (0.1, 0.3, 0.6, 1.2)):
        e0 = top * float(y.max())
        odds = np.log(np.maximum(y - np.exp(floor), 1e-3 * y)) - a * np.log(e0 - y)
        b = float(np.mean(odds + c * np.log(x[0])))
        yield np.array([floor, np.log(e0 - np.exp(floor)), b, np.log(a), np.log(c)])


M4 = Form(
    name="m4",
    formula="(y - e) / (e0 - y)^a = b x^-c",
    parameters=("e", "e0", "b", "a", "c"),
    starts=_m4_starts,
    log_predict=_m4_predict,
    jacobian=_m4_jacobian,
    natural=lambda t, s: {
        "e": float(np.exp(t[0])),
        "e0": float(np.exp(t[0]) + np.exp(t[1])),
        "b": float(np.exp(t[2] + np.exp(t[4]) * np.log(s[0]))),
        "a": float(np.exp(t[3])),
        "c": float(np.exp(t[4])),
    },
    limit=lambda p: p["e"],
    decay=lambda p: p["c"],
)


def _break_starts(x: np.ndarray, y: np.ndarray) -> Iterator[Theta]:
    intercept, slope = log_line(x, y)
    for floor, d, c0, extra in product(floors(y)[:3], (0.1, 1.0, 10.0), (0.5, 1.0), (-0.2, 0.1, 0.5)):
        start = max(0.02, -slope) * c0
        yield np.array([floor, intercept, start, extra, np.log(d * float(np.median(x[0]))), np.log(0.3)])


def _break_predict(t: Theta, x: np.ndarray) -> np.ndarray:
    f = np.exp(np.clip(t[5], -6.0, 6.0))  # beyond this, the bend is practically a corner
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
    return columns(1 - weight, weight, -weight * np.log(x[0]), -weight * f * bend, weight * t[3] * turned, by_f)


BROKEN = Form(
    name="bnsl1",
    formula="y = a + b x^-c0 (1 + (x/d)^(1/f))^(-c1 f)",
    parameters=("a", "b", "c0", "c1", "d", "f"),
    starts=_break_starts,
    log_predict=_break_predict,
    jacobian=_break_jacobian,
    natural=lambda t, s: {
        "a": float(np.exp(t[0])),
        "b": float(np.exp(t[1] + t[2] * np.log(s[0]))),
        "c0": float(t[2]),
        "c1": float(t[3]),
        "d": float(np.exp(t[4]) * s[0]),
        "f": float(np.exp(t[5])),
    },
    limit=lambda p: p["a"],
)


def _chinchilla_starts(x: np.ndarray, y: np.ndarray) -> Iterator[Theta]:
    for alpha, beta, a, b, e in product(
        (0.2, 0.5, 1.0), (0.2, 0.5, 1.0), (-3.0, -1.0, 0.0), (-3.0, -1.0, 0.0), (0.3, 0.8)
    ):
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
    name="chinchilla",
    formula="L = E + A N^-alpha + B D^-beta",
    parameters=("A", "B", "E", "alpha", "beta"),
    inputs=2,
    starts=_chinchilla_starts,
    log_predict=lambda t, x: log_sum(*_chinchilla_terms(t, x)),
    jacobian=_chinchilla_jacobian,
    natural=lambda t, s: {
        "A": float(np.exp(t[0] + t[3] * np.log(s[0]))),
        "alpha": float(t[3]),
        "B": float(np.exp(t[1] + t[4] * np.log(s[1]))),
        "beta": float(t[4]),
        "E": float(np.exp(t[2])),
    },
)


def _effective_passes(t: Theta, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return D' / U, the effective number of samples as a multiple of the unique samples U, and the derivative of this
    ratio by log R*.

    D' = U + U R* (1 - exp(-R / R*)), where R = D / U - 1 is the number of repeats, and R* says how fast the value of
    repeats decays. (R* is the parameter R of the form `repeated`.)
    """
    decay = np.exp(t[5])
    repeats = np.maximum(x[1] / x[2] - 1, 0.0) / decay
    decayed = np.exp(-repeats)
    return 1 + decay * (1 - decayed), decay * (1 - decayed - repeats * decayed)


def _repeated_terms(t: Theta, x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    passes, _ = _effective_passes(t, x)
    return t[0] - t[3] * np.log(x[0]), t[1] - t[4] * np.log(x[2] * passes), t[2]


def _repeated_jacobian(t: Theta, x: np.ndarray) -> np.ndarray:
    terms = _repeated_terms(t, x)
    total = log_sum(*terms)
    n, d, e = (np.exp(term - total) for term in terms)
    passes, slope = _effective_passes(t, x)
    return columns(n, d, e, -n * np.log(x[0]), -d * np.log(x[2] * passes), -d * t[4] * slope / passes)


def _repeated_starts(x: np.ndarray, y: np.ndarray) -> Iterator[Theta]:
    for start, decay in product(list(_chinchilla_starts(x[:2], y))[::2], (2.0, 15.0)):
        yield np.append(start, np.log(decay))


REPEATED = Form(
    name="repeated",
    formula="L = E + A N^-alpha + B D'^-beta, D' = U (1 + R (1 - exp((1 - D/U) / R)))",
    parameters=("A", "B", "E", "alpha", "beta", "R"),
    inputs=3,
    scaled_like=(0, 1, 1),
    starts=_repeated_starts,
    log_predict=lambda t, x: log_sum(*_repeated_terms(t, x)),
    jacobian=_repeated_jacobian,
    natural=lambda t, s: {**CHINCHILLA.natural(t[:5], s), "R": float(np.exp(t[5]))},
)
MAX_EPOCHS = 4.0
"""Number of epochs above which a law needs a term for repeated data: for language models, repeated data were worth
nearly as much as new data up to four epochs (Muennighoff et al. 2023)."""


FIRST, SECOND = 1.0, float(np.e)
"""Second input of a two-family law, for a point of the first or the second family. The logarithm of this input is the
indicator (0 or 1) of the second family."""


def two_families(form: Form) -> Form:
    """Return `form` extended to two families that differ by a factor k on compute: the second family needs k times as
    much for the same y."""

    def own(t: Theta, x: np.ndarray) -> np.ndarray:
        """Return, for every point, the compute with which the first family reaches the same y, (1, ...)."""
        return np.exp(np.clip(np.log(x[0]) - t[-1] * np.log(x[1]), -700, 700))[None]

    def jacobian(t: Theta, x: np.ndarray) -> np.ndarray:
        here, step = own(t, x), 1e-6
        above, below = (form.log_predict(t[:-1], here * np.exp(sign * step)) for sign in (1, -1))
        by_k = -np.log(x[1]) * (above - below) / (2 * step)
        return np.concatenate([form.jacobian(t[:-1], here), by_k[..., None]], axis=-1)

    def starts(x: np.ndarray, y: np.ndarray) -> Iterator[Theta]:
        for log_k, start in product((-1.5, -0.5, 0.5, 1.5), list(form.starts(x[:1], y))):
            yield np.append(start, log_k)

    return Form(
        name=f"shared-{form.name}",
        formula=form.formula.replace("x", "(x / k^family)"),
        inputs=2,
        parameters=(*form.parameters, "k"),
        starts=starts,
        jacobian=jacobian,
        log_predict=lambda t, x: form.log_predict(t[:-1], own(t, x)),
        natural=lambda t, s: {**form.natural(t[:-1], s[:1] * np.exp(-t[-1] * np.log(s[1]))), "k": float(np.exp(t[-1]))},
    )


CURVES = (POWER, POWER_FLOOR, ZHAI, M3, M4, BROKEN)
"""Laws of one variable, simplest first."""
FORMS = {form.name: form for form in (*CURVES, CHINCHILLA, REPEATED)}
FORM_NAMES: dict[str, tuple[str, str]] = {
    "power": ("power law", "Hestness et al. 2017, arXiv 1712.00409; Kaplan et al. 2020, 2001.08361"),
    "power-floor": (
        "power law + floor",
        "Henighan et al. 2020, 2010.14701; L(N) = E + A/N^α in Hoffmann et al. 2022",
    ),
    "zhai": ("shifted power law + floor", "Scaling Vision Transformers: Zhai et al. 2021, 2106.04560"),
    "m3": ("saturating power law (M3)", "Alabdulmohsin et al. 2022, 2209.06640"),
    "m4": ("power law from chance to a floor (M4)", "Alabdulmohsin et al. 2022, 2209.06640"),
    "bnsl1": ("broken power law (BNSL, one break)", "Caballero et al. 2022, 2210.14891"),
    "chinchilla": ("Chinchilla law", "approach 3 of Hoffmann et al. 2022, 2203.15556"),
    "repeated": ("Chinchilla law with repeated data", "Muennighoff et al. 2023, 2305.16264"),
    "isoflop": ("isoFLOP profiles", "approach 2 of Hoffmann et al. 2022, 2203.15556"),
}
"""For each value of --form: the form's full name, and its source (arXiv)."""


def form_name(form: str) -> str:
    return FORM_NAMES[form][0]
