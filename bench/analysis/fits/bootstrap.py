"""Intervals of fits by a bootstrap that resamples trunks, not points: horizons of one trunk share its luck.

With many trunks, trunks are drawn with replacement. With few, that would lose most of the range of x, so residuals are
redrawn instead: all residuals of a trunk keep or change their sign together (a wild bootstrap), enlarged for the degrees
of freedom that the fit used up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bench.analysis.fits.fit import Fit, Points, fit
from bench.analysis.fits.forms import Form
from bench.errors import UserError

LEVEL = 0.9
MANY_CLUSTERS = 40


@dataclass(frozen=True, kw_only=True, eq=False)
class Resampled:
    """Refits of one form. `method` is "trunks" or "residual signs by trunk"."""

    fit: Fit
    refits: tuple[Fit, ...]
    method: str
    failed: int

    def interval(self, values: Sequence[float], *, level: float = LEVEL) -> tuple[float, float]:
        """Percentile interval of a quantity computed from every refit."""
        return _quantiles(np.asarray(values, dtype=float), level)

    def parameters(self, *, level: float = LEVEL) -> dict[str, tuple[float, float]]:
        """Interval of every parameter."""
        return {n: self.interval([f.parameters[n] for f in self.refits], level=level) for n in self.fit.parameters}

    def predictions(self, x: np.ndarray) -> np.ndarray:
        """y of every refit at x: (refits, points)."""
        return np.stack([f.predict(x) for f in self.refits])


def resample(main: Fit, *, draws: int = 200, seed: int = 0) -> Resampled:
    """Refit `main` to `draws` resamples of its points, starting from its optimum.

    Raises:
        UserError: more than half of the resamples could not be fitted.
    """
    rng = np.random.default_rng(seed)
    clusters = np.unique(main.points.cluster)
    by_trunk = len(clusters) >= MANY_CLUSTERS
    make = _draw_trunks if by_trunk else _flip_residuals
    refits, failed = [], 0
    for _ in range(draws):
        points = make(main, clusters, rng)
        try:
            refits.append(_refit(main, points))
        except UserError:
            failed += 1
    if len(refits) < draws / 2:
        raise UserError(f"{failed} of {draws} resamples could not be fitted with {main.form.name!r}.", "Add runs.")
    method = "trunks" if by_trunk else "residual signs by trunk"
    return Resampled(fit=main, refits=tuple(refits), method=method, failed=failed)


def _refit(main: Fit, points: Points) -> Fit:
    """From the main optimum and a few points around it: resampled surfaces can have their minimum elsewhere."""
    scale = np.exp(np.log(points.x).mean(axis=1))
    form, theta = main.form, _rescale(main, scale)
    grid = list(form.starts(points.x / scale[:, None], points.y))
    extra = [grid[0], grid[len(grid) // 2]] if form.size <= 3 else []
    return fit(points, form, loss=main.loss, delta=main.delta, starts=[theta, *extra])


def _rescale(main: Fit, scale: np.ndarray) -> np.ndarray:
    """The main optimum, expressed for data of another geometric mean (nearly the same: a start, not a result)."""
    del scale
    return main.theta


def _draw_trunks(main: Fit, clusters: np.ndarray, rng: np.random.Generator) -> Points:
    drawn = rng.choice(clusters, size=len(clusters), replace=True)
    members = {c: np.flatnonzero(main.points.cluster == c) for c in clusters}
    return main.points.take(np.concatenate([members[c] for c in drawn]))


def _flip_residuals(main: Fit, clusters: np.ndarray, rng: np.random.Generator) -> Points:
    freedom = max(1, len(main.points) - main.form.size)
    enlarge = np.sqrt(len(main.points) / freedom)
    signs = dict(zip(clusters.tolist(), rng.choice([-1.0, 1.0], size=len(clusters)), strict=True))
    flip = np.array([signs[c] for c in main.points.cluster.tolist()])
    if len(clusters) == len(main.points):  # no shared luck: shuffle the residuals too, for more distinct resamples
        residuals = rng.choice(main.residuals, size=len(main.points), replace=True) * flip
    else:
        residuals = main.residuals * flip
    return main.points.with_y(np.exp(main.log_predict(main.points.x) + enlarge * residuals))


def _quantiles(values: np.ndarray, level: float) -> tuple[float, float]:
    finite = values[np.isfinite(values)]
    if not len(finite):
        return float("nan"), float("nan")
    low, high = np.quantile(finite, [0.5 - level / 2, 0.5 + level / 2])
    return float(low), float(high)


def total(
    points: Points, forms: Sequence[Form], x: np.ndarray, *, losses: Sequence[str] = ("huber", "squares", "absolute"),
    draws: int = 40, seed: int = 0, level: float = LEVEL,
) -> list[tuple[float, float]]:  # fmt: skip
    """Intervals of predictions at x over resamples, forms and losses together: what an honest reader should expect."""
    pooled = []
    for form in forms:
        for loss in losses:
            try:
                pooled.append(resample(fit(points, form, loss=loss), draws=draws, seed=seed).predictions(x))
            except UserError:
                continue
    if not pooled:
        raise UserError("No form could be fitted.", "Add runs.")
    every = np.concatenate(pooled)
    return [_quantiles(every[:, i], level) for i in range(every.shape[1])]
