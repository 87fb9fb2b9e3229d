"""How noisy the points of a fit are: luck that a trunk's horizons share, and luck of each point.

Both variances come from the residuals by equating two sums of squares (of trunk means, and about them) with what the
linearised fit lets through; nothing is assumed about how parameters split over the two. Few residuals tell a variance
roughly: every resample draws its own pair of variances, sum of squares / chi-square, so that intervals of a linear law
are Student's t intervals, and others take the same care.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bench.stats.fit import Fit, slopes


@dataclass(frozen=True, kw_only=True, eq=False)
class Noise:
    """Variance components of log y.

    Attributes:
        within, between: variance of one point, and of what the points of a trunk share.
        freedom: degrees of freedom (about trunk means, of trunk means).
        sums: the two sums of squares. passed: (2, 2), how much of (within, between) each sum contains on average.
        shape: residuals about trunk means, scaled to unit variance: what the noise of a point looks like.
    """

    within: float
    between: float
    freedom: tuple[float, float]
    sums: np.ndarray
    passed: np.ndarray
    shape: np.ndarray

    def draw(self, rng: np.random.Generator, cluster: np.ndarray, draws: int) -> np.ndarray:
        """Noise of every point in `draws` repeats of the study, (draws, points). `cluster` holds integers from 0."""
        chi = np.stack([rng.chisquare(f, draws) / f for f in self.freedom], axis=1)
        variances = _solve(self.sums / chi, self.passed)
        number, trunks = len(cluster), int(cluster.max()) + 1
        own = rng.choice(self.shape, (draws, number)) * rng.choice([-1.0, 1.0], (draws, number))
        shared = rng.normal(0, 1, (draws, trunks))[:, cluster]
        return np.sqrt(variances[:, :1]) * own + np.sqrt(variances[:, 1:]) * shared


def estimate(made: Fit) -> Noise:
    """Variance components from a fit's residuals."""
    _, cluster = np.unique(made.points.cluster, return_inverse=True)
    residuals, number = made.residuals, len(cluster)
    sizes = np.bincount(cluster)
    q_NP = np.linalg.qr(slopes(made))[0]
    mean_NG = (cluster[:, None] == np.arange(len(sizes))) / np.sqrt(sizes)
    through = mean_NG - q_NP @ (q_NP.T @ mean_NG)  # what the fit leaves of an effect of each trunk
    between_freedom = float((mean_NG * through).sum())
    total_freedom = number - q_NP.shape[1]
    single = len(sizes) == number
    indicator = through * np.sqrt(sizes)
    seen = float(((mean_NG.T @ indicator) ** 2).sum())
    passed = np.array(
        [[total_freedom - between_freedom, float((indicator**2).sum()) - seen], [between_freedom, seen]]
    )
    means = mean_NG @ (mean_NG.T @ residuals)
    sums = np.array([float(((residuals - means) ** 2).sum()), float((means**2).sum())])
    if single:  # nothing is shared: one variance
        sums, passed = np.array([float((residuals**2).sum()), 0.0]), np.array([[float(total_freedom), 0.0], [0.0, 1.0]])
    freedom = (max(1.0, float(passed[0, 0])), max(1.0, between_freedom if not single else total_freedom))
    within, between = _solve(sums[None], passed)[0]
    about = residuals if single else residuals - means
    spread = float(np.sqrt((about**2).mean()))
    shape = about / spread if spread > 0 else np.zeros(1)
    return Noise(within=float(within), between=float(between), freedom=freedom, sums=sums, passed=passed, shape=shape)


def _solve(sums: np.ndarray, passed: np.ndarray) -> np.ndarray:
    """(draws, 2) sums of squares -> (draws, 2) variances (within, between), none negative."""
    both = sums @ np.linalg.pinv(passed).T
    pooled = sums.sum(axis=1) / passed[:, 0].sum()
    none = both[:, 1] <= 0
    return np.stack([np.where(none, pooled, np.maximum(both[:, 0], 0)), np.where(none, 0.0, both[:, 1])], axis=1)
