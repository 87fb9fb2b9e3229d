"""Intervals of fits by a bootstrap that resamples trunks, not points: horizons of one trunk share its luck.

With many trunks, trunks are drawn with replacement. With few, that would lose most of the range of x, so the study is
repeated instead: the fit plus new luck of every trunk and of every point, as large as the residuals allow (see noise).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bench.core.errors import UserError
from bench.stats import variance as noise
from bench.stats.fit import QUICK, RELATIVE, SEARCHED, Fit, Points, descend, fit, objective_sums
from bench.stats.form import Form

LEVEL = 0.9
MANY_CLUSTERS = 40
AT_ONCE = 200_000  # points of all resamples that are refitted together: bounds memory
TRUNKS, NOISE = "trunks drawn with replacement", "luck of trunks and points redrawn"


@dataclass(frozen=True, kw_only=True, eq=False)
class Resampled:
    """Refits of one form. `thetas` holds one row of internal parameters per refit; `method` is TRUNKS or NOISE."""

    fit: Fit
    thetas: np.ndarray
    method: str

    def parameters(self, *, level: float = LEVEL) -> dict[str, tuple[float, float]]:
        """Interval of every parameter."""
        with np.errstate(over="ignore"):  # a parameter that these points do not determine may be anything
            every = [self.fit.form.natural(theta, self.fit.scale) for theta in self.thetas]
        return {name: self.interval(np.array([p[name] for p in every]), level=level) for name in self.fit.parameters}

    def predictions(self, x: np.ndarray) -> np.ndarray:
        """y of every refit at x: (refits, points)."""
        inputs = np.atleast_2d(x) / self.fit.scale[:, None]
        with np.errstate(all="ignore"):
            predicted = self.fit.form.log_predict(self.thetas.T[:, :, None], inputs)
            return np.exp(np.broadcast_to(predicted, (len(self.thetas), inputs.shape[1])))

    def one_run(self, x: np.ndarray, *, seed: int = 0) -> np.ndarray:
        """What one more run at x would measure, (refits, points): each refit's y with the scatter of a single point."""
        freedom = max(1, len(self.fit.points) - self.fit.form.size)
        scatter = self.fit.residuals * np.sqrt(len(self.fit.points) / freedom)
        predicted = self.predictions(x)
        return predicted * np.exp(np.random.default_rng(seed).choice(scatter, predicted.shape))

    def interval(self, values: np.ndarray, *, level: float = LEVEL) -> tuple[float, float]:
        """Percentile interval of a quantity computed from every refit."""
        return quantiles(values, level)


def resample(main: Fit, *, draws: int = 400, seed: int = 0, restarts: int = 2) -> Resampled:
    """Refit `main` to `draws` resamples, from its optimum and from `restarts` points of the form's grid."""
    rng = np.random.default_rng(seed)
    clusters = np.unique(main.points.cluster)
    x, log_y = main.points.x / main.scale[:, None], np.log(main.points.y)
    many = len(clusters) >= MANY_CLUSTERS
    weight = _draw_trunks(main, clusters, draws, rng) if many else np.ones((1, len(log_y)))
    targets = log_y[None] if many else _repeat(main, clusters, draws, rng)
    grid = list(main.form.starts(x, main.points.y))
    alone = not restarts or len(log_y) > SEARCHED  # many points leave no second optimum to fall into
    others = [] if alone else grid[:: -(-len(grid) // restarts)]
    together = max(1, AT_ONCE // len(log_y))
    parts = [
        _refit(main, x, targets if many else targets[i : i + together], weight[i : i + together] if many else weight,
               starts=(main.theta, *others), draws=min(together, draws - i))
        for i in range(0, draws, together)
    ]  # fmt: skip
    return Resampled(fit=main, thetas=np.concatenate(parts), method=TRUNKS if many else NOISE)


def _refit(
    main: Fit, x: np.ndarray, targets: np.ndarray, weight: np.ndarray, *, starts: Sequence[np.ndarray], draws: int
) -> np.ndarray:
    """The lowest end of all starts for each resample, (draws, parameters)."""
    best, least = np.tile(main.theta, (draws, 1)), np.full(draws, np.inf)
    for start in starts:
        ends = descend(main.form, x, targets, np.tile(start, (draws, 1)), loss=main.loss, delta=main.delta,
                       weight=weight, relative=QUICK)  # fmt: skip
        sums = objective_sums(main.form, x, targets, ends, weight=weight, loss=main.loss, delta=main.delta)
        better = sums < least
        best[better], least = ends[better], np.minimum(sums, least)
    return best


def _draw_trunks(main: Fit, clusters: np.ndarray, draws: int, rng: np.random.Generator) -> np.ndarray:
    """How often each point is in each resample."""
    times = rng.multinomial(len(clusters), np.full(len(clusters), 1 / len(clusters)), size=draws)
    return times[:, np.searchsorted(clusters, main.points.cluster)].astype(float)


def _repeat(main: Fit, clusters: np.ndarray, draws: int, rng: np.random.Generator) -> np.ndarray:
    """log y of each resample: the fit plus noise as large as the residuals allow."""
    cluster = np.searchsorted(clusters, main.points.cluster)
    return main.log_predict(main.points.x) + noise.estimate(main).draw(rng, cluster, draws)


def quantiles(values: np.ndarray, level: float) -> tuple[float, float]:
    """The middle `level` of the finite values."""
    finite = values[np.isfinite(values)]
    if not len(finite):
        return float("nan"), float("nan")
    low, high = np.quantile(finite, [0.5 - level / 2, 0.5 + level / 2])
    return float(low), float(high)


def total(
    points: Points, forms: Sequence[Form], x: np.ndarray, *, losses: Sequence[str] = ("huber", "squares", "absolute"),
    draws: int = 100, seed: int = 0, level: float = LEVEL,
) -> list[tuple[float, float]]:  # fmt: skip
    """Intervals of predictions at x over resamples, forms and losses together: what an honest reader should expect."""
    pooled = []
    exact = RELATIVE if len(points) <= SEARCHED else QUICK
    for form in forms:
        for loss in losses:
            try:
                made = fit(points, form, loss=loss, max_starts=60, relative=exact)
                pooled.append(resample(made, draws=draws, seed=seed, restarts=1).predictions(x))
            except UserError:
                continue
    if not pooled:
        raise UserError("No form could be fitted.", "Add runs.")
    every = np.concatenate(pooled)
    return [quantiles(every[:, i], level) for i in range(every.shape[1])]
