"""Uncertainty about the form of a law: refits of every form that the points leave possible, in one sample.

An interval from one form holds only if the form is right, and a few points seldom tell. Every form that can be fitted
is therefore resampled, in proportion to a weight. Weights are Akaike's (Burnham and Anderson 2002), tempered: with 5 to
12 points the form that fits best by chance would get too much of them. What is computed from every refit, such as a
prediction, a floor or the place where two laws cross, then has the forms' disagreement in its interval.
`python -m tests.stats.measure_crossings` measures how often such intervals hold the truth.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from bench.core.errors import UserError
from bench.stats.bootstrap import LAW_LEVEL, Resampled, quantiles, resample, variance_components
from bench.stats.fit import REFIT_FTOL, Fit, Points, fit
from bench.stats.forms import Form

TEMPER = 0.6
"""Exponent of Akaike's weights. At 1, intervals of floors and exponents hold the truth too seldom, at 0.5 those of
crossings too often (nominal 90 %, 5 to 12 points)."""
STARTS = 20  # of each form
LEAST_RMS = 1e-9  # of log residuals: points without any noise
STEP = 1.02  # ratio of the two x between which a slope is taken


@dataclass(frozen=True, kw_only=True, eq=False)
class Averaged:
    """Refits of several analyses (forms, losses) of the same points.

    Attributes:
        fit: the law that is shown. parts: refits of every analysis. weights: of all that were tried, (fit, weight),
            the largest first; the sum is 1.
        order: of the refits of all parts, shuffled: refits of two groups are then paired independently of their forms.
    """

    fit: Fit
    parts: tuple[Resampled, ...]
    weights: tuple[tuple[Fit, float], ...]
    order: np.ndarray

    @property
    def method(self) -> str:
        return self.parts[0].method

    @cached_property
    def form_weights(self) -> dict[str, float]:
        """Weight of every form that was tried, the largest first."""
        found: dict[str, float] = {}
        for made, weight in self.weights:
            found[made.form.name] = found.get(made.form.name, 0.0) + weight
        return dict(sorted(found.items(), key=lambda item: -item[1]))

    def predictions(self, x: np.ndarray) -> np.ndarray:
        """y of every refit at x: (refits, points)."""
        return np.concatenate([part.predictions(x) for part in self.parts])[self.order]

    def last_parameter(self) -> np.ndarray:
        """The last internal parameter of every refit, (refits,): in laws of two families the log of their factor."""
        return np.concatenate([part.thetas[:, -1] for part in self.parts])[self.order]

    def interval(self, values: np.ndarray, *, level: float = LAW_LEVEL) -> tuple[float, float]:
        """Percentile interval of a quantity computed from every refit."""
        return quantiles(values, level)

    def slopes(self, x: float) -> np.ndarray:
        """-d log y / d log x at x of every refit, (refits,)."""
        with np.errstate(all="ignore"):
            log_y = np.log(self.predictions(_around(x)))
        return _slope(log_y)

    def slope(self, x: float) -> float:
        """The same of the law that is shown."""
        return float(_slope(self.fit.log_predict(_around(x))[None])[0])

    def floors(self) -> np.ndarray:
        """Limit of y for x without end, of every refit whose form has one."""
        return self._derived("limit")

    def exponents(self) -> np.ndarray:
        """Exponent with which y - limit falls for x without end, of every refit whose form has one."""
        return self._derived("decay")

    def _derived(self, name: str) -> np.ndarray:
        values = []
        for part in self.parts:
            derive = getattr(part.fit.form, name)
            with np.errstate(all="ignore"):
                values += [derive(part.fit.form.natural(t, part.fit.scale)) for t in part.thetas] if derive else []
        return np.array(values, dtype=float)


def _around(x: float) -> np.ndarray:
    return np.array([x / STEP**0.5, x * STEP**0.5])


def _slope(log_y: np.ndarray) -> np.ndarray:
    return (log_y[:, 0] - log_y[:, 1]) / np.log(STEP)


def average(fits: Sequence[Fit], *, shown: Fit, draws: int = 400, seed: int = 0, restarts: int = 1) -> Averaged:
    """Resample analyses of the same points, each as often as its weight says.

    Args:
        fits: of every analysis. shown: the law that is printed. draws: refits in all.
        seed: of the resamples; groups that are compared need different ones, else their noise is the same.
    """
    weights = weigh(fits)
    counts = _shares(weights, draws)
    parts = tuple(
        resample(made, draws=int(count), seed=seed + 1000 * number, restarts=restarts)
        for number, (made, count) in enumerate(zip(fits, counts, strict=True))
        if count
    )
    ranked = sorted(zip(fits, weights.tolist(), strict=True), key=lambda item: -item[1])
    order = np.random.default_rng(seed).permutation(sum(len(part.thetas) for part in parts))
    return Averaged(fit=shown, parts=parts, weights=tuple(ranked), order=order)


def alone(made: Resampled) -> Averaged:
    """One analysis, as the user asked for it."""
    return Averaged(fit=made.fit, parts=(made,), weights=((made.fit, 1.0),), order=np.arange(len(made.thetas)))


def fits_of(points: Points, forms: Sequence[Form], *, loss: str, delta: float | None = None) -> list[Fit]:
    """A fit of every form that the points allow."""
    made = []
    for form in forms:
        try:
            made.append(fit(points, form, loss=loss, delta=delta, max_starts=STARTS, ftol=REFIT_FTOL))
        except UserError:
            continue
    return made


def weigh(fits: Sequence[Fit]) -> np.ndarray:
    """Tempered Akaike weights, (fits,)."""
    criteria = np.array([criterion(made, fits) for made in fits])
    weights = np.exp(-TEMPER / 2 * (criteria - criteria.min()))
    return weights / weights.sum()


def criterion(made: Fit, fits: Sequence[Fit]) -> float:
    """Akaike's criterion of a fit among others: n log(sum of squares) + 2 (parameters + 1). Trunks share noise: the sum
    is that of generalised least squares, with the ratio of variances that the best of the fits leaves."""
    best = min(fits, key=lambda f: f.rms)
    noise, residuals, number = variance_components(best), made.residuals, len(made.points)
    ratio = noise.between / noise.within if noise.within > 0 else 0.0
    _, cluster = np.unique(made.points.cluster, return_inverse=True)
    sizes = np.bincount(cluster)
    means = np.bincount(cluster, residuals) / sizes
    squares = float(((residuals - means[cluster]) ** 2).sum() + (sizes * means**2 / (1 + ratio * sizes)).sum())
    return number * np.log(max(squares / number, LEAST_RMS**2)) + 2 * (made.form.size + 1)


def _shares(weights: np.ndarray, draws: int) -> np.ndarray:
    """Whole numbers in proportion to weights, whose sum is `draws`: those with the largest remainders round up."""
    exact = weights * draws
    counts = np.floor(exact).astype(int)
    counts[np.argsort(counts - exact, kind="stable")[: draws - int(counts.sum())]] += 1
    return counts
