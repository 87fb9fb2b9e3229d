"""Bootstrap intervals of fits, clustered by trunk: all points that come from one training run (trunk) share its noise.

With many trunks, a resample draws trunks with replacement. With few, that would lose most of the range of x; a
parametric bootstrap simulates the study instead: a resample is the fit, plus new noise of every trunk and of every
point. The variances of both kinds of noise (the variance components) are estimated from the residuals.

The estimates come from two sums of squares of residuals (between trunk means, and within trunks). Each sum is equated
with its expectation, which allows for the noise that the linearised fit absorbs. With few residuals a variance is
uncertain. So every resample draws its own pair of variances, sum of squares / chi-square; a law that is linear in
logarithms then gets Student's t intervals.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special

from bench.laws.fit import MAX_REFIT_STEPS, REFIT_FTOL, SUBSAMPLE, FormFit, descend, jacobian, objectives

LAW_LEVEL = 0.9  # level of all intervals of laws
MANY_CLUSTERS = 40  # with at least this many clusters, clusters are drawn with replacement
LEAST_P = 1e-9  # smallest p-value returned
MAX_BATCH = 200_000  # points in all resamples that are refitted together; bounds memory
NONPARAMETRIC, PARAMETRIC = "cluster bootstrap", "parametric cluster bootstrap"


@dataclass(frozen=True, kw_only=True, eq=False)
class Resampled:
    """Bootstrap refits of one functional form of a law.

    Attributes:
        fit: the fit to the original points.
        thetas: internal parameters of the form, (refits, parameters).
        method: NONPARAMETRIC or PARAMETRIC.
    """

    fit: FormFit
    thetas: np.ndarray
    method: str

    @property
    def freedom(self) -> float:
        """Degrees of freedom of the estimated variance between training runs (trunks)."""
        return variance_components(self.fit).freedom[1]

    def parameters(self, *, level: float = LAW_LEVEL) -> dict[str, tuple[float, float]]:
        """Return the interval of every parameter by name, at a confidence `level`, in the user's units."""
        with np.errstate(over="ignore", invalid="ignore"):  # parameters that the points do not determine may overflow
            every = [self.fit.form.natural(theta, self.fit.scale) for theta in self.thetas]
        return {name: self.interval(np.array([p[name] for p in every]), level=level) for name in self.fit.parameters}

    def predictions(self, x: np.ndarray) -> np.ndarray:
        """Return y of every refit, (refits, points), at x: (inputs, points), or (points,) for one input."""
        inputs = np.atleast_2d(x) / self.fit.scale[:, None]
        with np.errstate(all="ignore"):
            predicted = self.fit.form.log_predict(self.thetas.T[:, :, None], inputs)
            return np.exp(np.broadcast_to(predicted, (len(self.thetas), inputs.shape[1])))

    def interval(self, values: np.ndarray, *, level: float = LAW_LEVEL) -> tuple[float, float]:
        """Return (low, high), the percentile interval of a quantity at a confidence `level`, from the quantity's value
        in every refit."""
        return quantiles(values, level)


def resample(main: FormFit, *, draws: int = 400, seed: int = 0, restarts: int = 2) -> Resampled:
    """Refit the form of the fit `main` to `draws` resamples of its points. Each refit descends from the optimum of
    `main` and from about `restarts` further starting points; the end with the least loss is kept. For many points, the
    optimum of `main` is the only start."""
    rng = np.random.default_rng(seed)
    clusters = np.unique(main.points.cluster)
    x, log_y = main.points.x / main.scale[:, None], np.log(main.points.y)
    many = len(clusters) >= MANY_CLUSTERS
    weight = _draw_clusters(main, clusters, draws, rng) if many else np.ones((1, len(log_y)))
    targets = log_y[None] if many else _simulate(main, clusters, draws, rng)
    grid = list(main.form.starts(x, main.points.y))
    large = len(log_y) > SUBSAMPLE or main.points.scatter is not None
    single = not restarts or large  # with many points, one start is enough: there is no second optimum nearby
    others = [] if single else grid[:: -(-len(grid) // restarts)]
    together = max(1, MAX_BATCH // len(log_y))
    parts = [
        _refit(
            main,
            x,
            targets if many else targets[i : i + together],
            weight[i : i + together] if many else weight,
            starts=(main.theta, *others),
            draws=min(together, draws - i),
        )
        for i in range(0, draws, together)
    ]
    return Resampled(fit=main, thetas=np.concatenate(parts), method=NONPARAMETRIC if many else PARAMETRIC)


def _refit(
    main: FormFit,
    x: np.ndarray,
    targets: np.ndarray,
    weight: np.ndarray,
    *,
    starts: Sequence[np.ndarray],
    draws: int,
) -> np.ndarray:
    """Return the internal parameters fitted to each resample, (draws, parameters): the best of all descents.

    Args:
        main: the fit to the original points.
        x: inputs, divided by the fit's scale, (inputs, points).
        targets: log y of every resample, (draws, points), or (1, points) if all have the same.
        weight: weights of the points, (draws, points) or (1, points).
        starts: internal parameters at which descents begin, (parameters,) each.
        draws: number of resamples.
    """
    best, least = np.tile(main.theta, (draws, 1)), np.full(draws, np.inf)
    for start in starts:
        ends = descend(
            main.form,
            x,
            targets,
            np.tile(start, (draws, 1)),
            loss=main.loss,
            delta=main.delta,
            weight=weight,
            ftol=REFIT_FTOL,
            steps=MAX_REFIT_STEPS,
        )
        sums = objectives(main.form, x, targets, ends, weight=weight, loss=main.loss, delta=main.delta)
        better = sums < least
        best[better], least = ends[better], np.minimum(sums, least)
    return best


def _draw_clusters(main: FormFit, clusters: np.ndarray, draws: int, rng: np.random.Generator) -> np.ndarray:
    """Draw trunks (training runs) with replacement; return how often each point is in each resample, (draws, points).
    `clusters`: the distinct trunks of the points, ascending."""
    times = rng.multinomial(len(clusters), np.full(len(clusters), 1 / len(clusters)), size=draws)
    return times[:, np.searchsorted(clusters, main.points.cluster)].astype(float)


def _simulate(main: FormFit, clusters: np.ndarray, draws: int, rng: np.random.Generator) -> np.ndarray:
    """Return log y of `draws` simulated studies, (draws, points): what the fit `main` predicts, plus random noise of
    trunks (training runs) and points. The variances of the noise are estimated from the fit's residuals
    (`variance_components`). `clusters`: the distinct trunks, ascending."""
    cluster = np.searchsorted(clusters, main.points.cluster)
    return main.log_predict(main.points.x) + variance_components(main).draw(rng, cluster, draws)


@dataclass(frozen=True, kw_only=True, eq=False)
class VarianceComponents:
    """Variances of log y about a law: between trunks (training runs), and between the points of one trunk.

    Attributes:
        within: variance of single points about their trunk; the only variance if every trunk has one point.
        between: variance of trunks.
        freedom: degrees of freedom of both variances: (within, between).
        sums: sums of squares of residuals, (2,): within trunks, between trunks.
        expected: (2, 2); `expected` @ (within, between) is the expectation of `sums`.
        standardised: residuals about trunk means, scaled to unit variance, (points,).
    """

    within: float
    between: float
    freedom: tuple[float, float]
    sums: np.ndarray
    expected: np.ndarray
    standardised: np.ndarray

    def draw(self, rng: np.random.Generator, cluster: np.ndarray, draws: int) -> np.ndarray:
        """Return random noise of log y for every point in `draws` simulated studies, (draws, points).

        Args:
            cluster: index of each point's training run (trunk), from 0.
        """
        # Chi-squares are made from one uniform number each: how many numbers numpy's own sampler takes from the
        # generator depends on the last digits of the degrees of freedom, which differ between processors.
        chi = np.stack([2 * special.gammaincinv(f / 2, rng.random(draws)) / f for f in self.freedom], axis=1)
        variances = _solve(self.sums / chi, self.expected)
        number, trunks = len(cluster), int(cluster.max()) + 1
        own = rng.choice(self.standardised, (draws, number)) * rng.choice([-1.0, 1.0], (draws, number))
        shared = rng.normal(0, 1, (draws, trunks))[:, cluster]
        return np.sqrt(variances[:, :1]) * own + np.sqrt(variances[:, 1:]) * shared


def variance_components(made: FormFit) -> VarianceComponents:
    """Estimate the variances between and within trunks from a fit's residuals, by the method of moments."""
    _, cluster = np.unique(made.points.cluster, return_inverse=True)
    residuals, number = made.residuals, len(cluster)
    sizes = np.bincount(cluster)
    q_NP = np.linalg.qr(jacobian(made))[0]
    mean_NG = (cluster[:, None] == np.arange(len(sizes))) / np.sqrt(sizes)
    left_NG = mean_NG - q_NP @ (q_NP.T @ mean_NG)  # the part of each trunk's effect that the fit does not absorb
    between_freedom = float((mean_NG * left_NG).sum())
    total_freedom = number - q_NP.shape[1]
    single = len(sizes) == number
    indicator = left_NG * np.sqrt(sizes)
    explained = float(((mean_NG.T @ indicator) ** 2).sum())
    expected = np.array(
        [[total_freedom - between_freedom, float((indicator**2).sum()) - explained], [between_freedom, explained]]
    )
    means = mean_NG @ (mean_NG.T @ residuals)
    sums = np.array([float(((residuals - means) ** 2).sum()), float((means**2).sum())])
    if single:  # every trunk has one point: there is only one variance
        sums = np.array([float((residuals**2).sum()), 0.0])
        expected = np.array([[float(total_freedom), 0.0], [0.0, 1.0]])
    freedom = (max(1.0, float(expected[0, 0])), max(1.0, between_freedom if not single else total_freedom))
    within, between = _solve(sums[None], expected)[0]
    about = residuals if single else residuals - means
    spread = float(np.sqrt((about**2).mean()))
    standardised = about / spread if spread > 0 else np.zeros(1)
    return VarianceComponents(
        within=float(within),
        between=float(between),
        freedom=freedom,
        sums=sums,
        expected=expected,
        standardised=standardised,
    )


def _solve(sums: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """Return the variances (within, between), (draws, 2), for which `sums` of squares, (draws, 2), are as expected;
    none is negative. `expected`: as in `VarianceComponents`."""
    both = sums @ np.linalg.pinv(expected).T
    pooled = sums.sum(axis=1) / expected[:, 0].sum()
    none = both[:, 1] <= 0
    return np.stack([np.where(none, pooled, np.maximum(both[:, 0], 0)), np.where(none, 0.0, both[:, 1])], axis=1)


def quantiles(values: np.ndarray, level: float) -> tuple[float, float]:
    """Return (low, high), the interval that holds the middle fraction `level` of the finite values; NaN for both ends
    if no value is finite."""
    finite = values[np.isfinite(values)]
    if not len(finite):
        return float("nan"), float("nan")
    low, high = np.quantile(finite, [0.5 - level / 2, 0.5 + level / 2])
    return float(low), float(high)


def p_of_t(distance: float, half: float, *, df: float, level: float) -> float:
    """Return the two-sided p-value, by Student's t, of the hypothesis that a quantity has a certain (tested) value.

    Args:
        distance: from the quantity's estimate to the tested value.
        half: from the estimate to the end of its interval, on the side of the tested value.
        df: degrees of freedom.
        level: confidence level of that interval.
    """
    if half <= 0:
        return LEAST_P if distance else 1.0
    return max(LEAST_P, 2 * float(special.stdtr(df, -abs(distance) / half * special.stdtrit(df, 0.5 + level / 2))))
