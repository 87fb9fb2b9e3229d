"""Averaging over functional forms: bootstrap refits of every form that the points leave possible, in one sample.

An interval from one form holds only if the form is right, and a few points seldom show that. Therefore every form that
can be fitted is refitted to resamples of the points; the number of its refits is in proportion to its weight. Weights
are Akaike's (Burnham and Anderson 2002), tempered (raised to the power `TEMPER`): otherwise, with 5 to 12 points, the
form that fits best by chance would get too much weight. The interval of a quantity that is computed from every refit,
such as a prediction, a floor or a crossing of two laws, then includes the disagreement of the forms.
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
"""Power to which Akaike's weights are raised. At 1, intervals of floors and exponents hold the truth too rarely; at
0.5, those of crossings too often (nominal 90 %, 5 to 12 points)."""
STARTS = 20  # starting points of each form's fit
MIN_SHARE = 0.1  # a quantity that not every form has is reported if at least this fraction of the refits has it
LEAST_RMS = 1e-9  # lower limit of the rms of log residuals, for points without any noise
SLOPE_STEP = 1.02  # ratio of the two x between which a slope is taken


@dataclass(frozen=True, kw_only=True, eq=False)
class Averaged:
    """Bootstrap refits of several analyses of the same points, pooled. An analysis is one functional form, fitted
    with one loss.

    Attributes:
        fit: the law that is shown to the user.
        parts: the refits, one entry for each analysis whose weight gave it any.
        weights: name of every form that was tried -> its weight, the largest first.
        order: a random permutation of all refits, in which predictions and factors are returned. Refits of two groups
            that are compared one by one are then paired independently of their forms.
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
        """Degrees of freedom of the estimated variance between training runs (trunks), averaged over refits."""
        return float(np.average([part.freedom for part in self.parts], weights=[len(p.thetas) for p in self.parts]))

    def predictions(self, x: np.ndarray) -> np.ndarray:
        """Return y of every refit, (refits, points), at x: (inputs, points), or (points,) for one input."""
        return np.concatenate([part.predictions(x) for part in self.parts])[self.order]

    def factors(self) -> np.ndarray:
        """Return log k of every refit, (refits,), for forms of `forms.two_families`; k is the factor on compute between
        the two families."""
        return np.concatenate([part.thetas[:, -1] for part in self.parts])[self.order]

    def interval(self, values: np.ndarray, *, level: float = LAW_LEVEL) -> tuple[float, float]:
        """Return (low, high), the percentile interval of a quantity at a confidence `level`, from the quantity's value
        in every refit."""
        return quantiles(values, level)

    def slopes(self, x: float) -> np.ndarray:
        """Return the slope -d log y / d log x of every refit at x, (refits,)."""
        with np.errstate(all="ignore"):
            log_y = np.log(self.predictions(np.array([x / SLOPE_STEP**0.5, x * SLOPE_STEP**0.5])))
        return (log_y[:, 0] - log_y[:, 1]) / np.log(SLOPE_STEP)

    def floors(self) -> np.ndarray:
        """Return the limit of y as x goes to infinity: one value for each refit whose form has such a limit, (n,)."""
        return self._derived("limit")

    def exponents(self) -> np.ndarray:
        """Return the exponent with which y - limit falls as x goes to infinity: one value for each refit whose form has
        such an exponent, (n,)."""
        return self._derived("decay")

    def _derived(self, name: str) -> np.ndarray:
        values = []
        for part in self.parts:
            derive = getattr(part.fit.form, name)
            with np.errstate(all="ignore"):
                values += [derive(part.fit.form.natural(t, part.fit.scale)) for t in part.thetas] if derive else []
        return np.array(values, dtype=float)


def average(fits: Sequence[FormFit], *, shown: FormFit, draws: int = 400, seed: int = 0, restarts: int = 1) -> Averaged:
    """Refit several analyses of the same points to resamples; each gets refits in proportion to its Akaike weight.

    Args:
        fits: one fit for each analysis (a form fitted with one loss).
        shown: the law that is shown to the user.
        draws: total number of refits.
        seed: random seed. Groups that are compared need different seeds, or their simulated noise would be the same.
        restarts: number of additional starting points of every refit, as in `bootstrap.resample`.
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
    """Return the refits of a single analysis as an `Averaged`; used if the user has chosen the form."""
    return Averaged(fit=made.fit, parts=(made,), weights={made.fit.form.name: 1.0}, order=np.arange(len(made.thetas)))


def fits_of(points: Points, forms: Sequence[Form], *, loss: str, delta: float | None = None) -> list[FormFit]:
    """Return a fit of every form in `forms` that can be fitted to the points; the other forms are left out. `loss` and
    `delta` (Huber's threshold) are as in `fit.fit`."""
    made = []
    for form in forms:
        try:
            made.append(fit(points, form, loss=loss, delta=delta, max_starts=STARTS, ftol=REFIT_FTOL))
        except UserError:
            continue
    return made


def weigh(fits: Sequence[FormFit]) -> np.ndarray:
    """Return the tempered Akaike weight of each of several fits to the same points, (fits,); their sum is 1."""
    criteria = np.array([criterion(made, fits) for made in fits])
    weights = np.exp(-TEMPER / 2 * (criteria - criteria.min()))
    return weights / weights.sum()


@dataclass(frozen=True, kw_only=True)
class OverForms:
    """A quantity that means the same in several forms, such as the slope at one x: its median (`value`) and interval
    over all refits that have it."""

    value: float
    low: float
    high: float


def comparable(made: Averaged, x: float) -> dict[str, OverForms]:
    """Return the quantities by which forms can be compared, by name: "slope" (-d log y / d log x at x), "floor" (limit
    of y as x goes to infinity) and "exponent" (with which y falls to the floor).

    A quantity that fewer than a fraction `MIN_SHARE` of the refits have is left out. The floor is also left out if it
    is 0 in every refit, because all forms then assume that there is none.
    """
    over_forms = {}
    for name, values in {"slope": made.slopes(x), "floor": made.floors(), "exponent": made.exponents()}.items():
        finite = values[np.isfinite(values)]
        if len(finite) >= MIN_SHARE * len(made.order) and not (name == "floor" and not finite.any()):
            low, high = made.interval(finite)
            over_forms[name] = OverForms(value=float(np.median(finite)), low=low, high=high)
    return over_forms


def form_weights(fits: Sequence[FormFit]) -> dict[str, float]:
    """Return the weight of every form by name, the largest first. If a form was fitted with several losses, the weights
    of these fits are added."""
    weights: dict[str, float] = {}
    for made, weight in zip(fits, weigh(fits), strict=True):
        weights[made.form.name] = weights.get(made.form.name, 0.0) + float(weight)
    return dict(sorted(weights.items(), key=lambda item: -item[1]))


def criterion(made: FormFit, fits: Sequence[FormFit]) -> float:
    """Return Akaike's criterion of a fit: n log(sum of squares / n) + 2 (parameters + 1).

    Because points of one trunk (training run) share noise, the sum of squares is that of generalised least squares. The
    ratio of the variances between and within trunks, which it needs, is estimated from the residuals of the best fit.

    Args:
        fits: all fits that are compared; the one with the least rms is the best.
    """
    best = min(fits, key=lambda f: f.rms)
    noise, residuals, number = variance_components(best), made.residuals, len(made.points)
    ratio = noise.between / noise.within if noise.within > 0 else 0.0
    _, cluster = np.unique(made.points.cluster, return_inverse=True)
    sizes = np.bincount(cluster)
    means = np.bincount(cluster, residuals) / sizes
    squares = float(((residuals - means[cluster]) ** 2).sum() + (sizes * means**2 / (1 + ratio * sizes)).sum())
    return number * np.log(max(squares / number, LEAST_RMS**2)) + 2 * (made.form.size + 1)


def _shares(weights: np.ndarray, draws: int) -> np.ndarray:
    """Return how many of `draws` refits each fit gets: whole numbers in proportion to the weights, whose sum is
    `draws`. The largest remainders are rounded up.

    Products weight · draws are rounded to three digits first: where two forms give the same curve, their weights differ
    only by rounding errors, which vary between processors and must not decide.
    """
    exact = np.round(weights * draws, 3)
    counts = np.floor(exact).astype(int)
    counts[np.argsort(counts - exact, kind="stable")[: draws - int(counts.sum())]] += 1
    return counts
