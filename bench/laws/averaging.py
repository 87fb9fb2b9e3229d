"""Uncertainty about the form of a law: refits of every form that the points leave possible, in one sample.

An interval from one form holds only if the form is right, and a few points seldom tell. Every form that can be fitted
is therefore resampled, in proportion to a weight. Weights are Akaike's (Burnham and Anderson 2002), tempered: with 5 to
12 points the form that fits best by chance would get too much of them. A quantity that is computed from every refit,
such as a prediction, a floor or the place where two laws cross, then has the forms' disagreement in its interval.
`python -m tools.measure_crossings` measures how often such intervals hold the truth (results/reference/coverage/).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from bench.core.errors import UserError
from bench.laws.bootstrap import LAW_LEVEL, Resampled, quantiles, resample, variance_components
from bench.laws.fit import REFIT_FTOL, FormFit, Points, fit
from bench.laws.forms import Form

TEMPER = 0.6
"""Exponent of Akaike's weights. At 1, intervals of floors and exponents hold the truth too seldom, at 0.5 those of
crossings too often (nominal 90 %, 5 to 12 points)."""
STARTS = 20  # of each form
MIN_SHARE = 0.1  # of the refits that must have a quantity which not every form has
LEAST_RMS = 1e-9  # of log residuals: points without any noise
SLOPE_STEP = 1.02  # ratio of the two x between which a slope is taken


@dataclass(frozen=True, kw_only=True, eq=False)
class Averaged:
    """Refits of several analyses (forms, losses) of the same points.

    Attributes:
        fit: the law that is shown.
        parts: refits of every analysis that has any.
        weights: of every form that was tried, the largest first.
        order: of the refits of all parts, shuffled: refits of two groups are then paired independently of their forms.
    """

    fit: FormFit
    parts: tuple[Resampled, ...]
    weights: Mapping[str, float]
    order: np.ndarray

    @property
    def method(self) -> str:
        return self.parts[0].method

    @property
    def freedom(self) -> float:
        """Degrees of freedom of the noise, mean over refits."""
        return float(np.average([part.freedom for part in self.parts], weights=[len(p.thetas) for p in self.parts]))

    def predictions(self, x: np.ndarray) -> np.ndarray:
        """y of every refit at x: (refits, points)."""
        return np.concatenate([part.predictions(x) for part in self.parts])[self.order]

    def factors(self) -> np.ndarray:
        """log of the factor between two families (`two_families`) of every refit, (refits,)."""
        return np.concatenate([part.thetas[:, -1] for part in self.parts])[self.order]

    def interval(self, values: np.ndarray, *, level: float = LAW_LEVEL) -> tuple[float, float]:
        """Percentile interval of a quantity computed from every refit."""
        return quantiles(values, level)

    def slopes(self, x: float) -> np.ndarray:
        """-d log y / d log x at x of every refit, (refits,)."""
        with np.errstate(all="ignore"):
            log_y = np.log(self.predictions(np.array([x / SLOPE_STEP**0.5, x * SLOPE_STEP**0.5])))
        return (log_y[:, 0] - log_y[:, 1]) / np.log(SLOPE_STEP)

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


def average(fits: Sequence[FormFit], *, shown: FormFit, draws: int = 400, seed: int = 0, restarts: int = 1) -> Averaged:
    """Resample analyses of the same points, each as often as its weight says.

    Args:
        fits: of every analysis.
        shown: the law that is printed.
        draws: refits in all.
        seed: of the resamples; groups that are compared need different ones, else their noise is the same.
    """
    counts = _shares(weigh(fits), draws)
    parts = tuple(
        resample(made, draws=int(count), seed=seed + 1000 * number, restarts=restarts)
        for number, (made, count) in enumerate(zip(fits, counts, strict=True))
        if count
    )
    order = np.random.default_rng(seed).permutation(sum(len(part.thetas) for part in parts))
    return Averaged(fit=shown, parts=parts, weights=form_weights(fits), order=order)


def alone(made: Resampled) -> Averaged:
    """One analysis, as the user asked for it."""
    return Averaged(fit=made.fit, parts=(made,), weights={made.fit.form.name: 1.0}, order=np.arange(len(made.thetas)))


def fits_of(points: Points, forms: Sequence[Form], *, loss: str, delta: float | None = None) -> list[FormFit]:
    """A fit of every form that the points allow."""
    made = []
    for form in forms:
        try:
            made.append(fit(points, form, loss=loss, delta=delta, max_starts=STARTS, ftol=REFIT_FTOL))
        except UserError:
            continue
    return made


def weigh(fits: Sequence[FormFit]) -> np.ndarray:
    """Tempered Akaike weights, (fits,)."""
    criteria = np.array([criterion(made, fits) for made in fits])
    weights = np.exp(-TEMPER / 2 * (criteria - criteria.min()))
    return weights / weights.sum()


@dataclass(frozen=True, kw_only=True)
class OverForms:
    """A quantity that forms can be compared by: median and interval over the refits of all that have it."""

    value: float
    low: float
    high: float


def comparable(made: Averaged, x: float) -> dict[str, OverForms]:
    """The slope -d log y / d log x at x, the floor (limit of y for x without end) and the exponent with which y falls
    to it; without those that hardly any refit has, and without a floor that every form assumes to be 0: it was not
    found."""
    over_forms = {}
    for name, values in {"slope": made.slopes(x), "floor": made.floors(), "exponent": made.exponents()}.items():
        finite = values[np.isfinite(values)]
        if len(finite) >= MIN_SHARE * len(made.order) and not (name == "floor" and not finite.any()):
            low, high = made.interval(finite)
            over_forms[name] = OverForms(value=float(np.median(finite)), low=low, high=high)
    return over_forms


def form_weights(fits: Sequence[FormFit]) -> dict[str, float]:
    """Weight of every form, the largest first. Fits of one form (several losses) add up."""
    weights: dict[str, float] = {}
    for made, weight in zip(fits, weigh(fits), strict=True):
        weights[made.form.name] = weights.get(made.form.name, 0.0) + float(weight)
    return dict(sorted(weights.items(), key=lambda item: -item[1]))


def criterion(made: FormFit, fits: Sequence[FormFit]) -> float:
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
    """Whole numbers in proportion to weights, whose sum is `draws`: those with the largest remainders round up. Where
    forms become each other, their weights differ by the processor: no remainder turns on these."""
    exact = np.round(weights * draws, 3)
    counts = np.floor(exact).astype(int)
    counts[np.argsort(counts - exact, kind="stable")[: draws - int(counts.sum())]] += 1
    return counts
