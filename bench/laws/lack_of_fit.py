"""Lack-of-fit F test of a law against group means, with the noise between seeds as pure error.

A law that deviates from the group means by more than their noise has the wrong shape there, however narrow its
intervals.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import special

SIGNIFICANCE = 0.05  # p of the F test
MATERIAL = 0.05  # share of the error: a smaller deviation is accepted
Z_CONTRADICTION = 2.5  # standard errors by which contradictory numbers differ at least


@dataclass(frozen=True, kw_only=True, eq=False)
class GroupMeans:
    """Mean error over seeds at each x, in order of x.

    Attributes:
        x, error: of each group.
        noise: standard error of each mean, from repeated training.
        freedom: degrees of freedom of the noise; 0 where nothing was repeated and the noise is unknown.
    """

    x: np.ndarray
    error: np.ndarray
    noise: np.ndarray
    freedom: float

    def take(self, chosen: np.ndarray) -> GroupMeans:
        return GroupMeans(x=self.x[chosen], error=self.error[chosen], noise=self.noise[chosen], freedom=self.freedom)


@dataclass(frozen=True, kw_only=True)
class LackOfFit:
    """A law beside the group means. `p`: of the F test. `worst`: the largest deviation as a share of the error there,
    where the law predicts `predicted` and the mean is `error`."""

    p: float
    worst: float
    predicted: float
    error: float

    @property
    def fails(self) -> bool:
        return self.p < SIGNIFICANCE and self.worst >= MATERIAL


def lack_of_fit(means: GroupMeans, predicted: np.ndarray, *, parameters: int) -> LackOfFit | None:
    """The test of a law's predictions at the group means; None without repeats, or without more groups than
    parameters."""
    freedom = len(means.x) - parameters
    if not means.freedom or freedom < 1:
        return None
    off = np.log(means.error / predicted)
    score = float(((off * means.error / means.noise) ** 2).sum()) / freedom
    deviation = np.abs(means.error - predicted) / means.error
    at = int(deviation.argmax())
    return LackOfFit(
        p=float(special.fdtrc(freedom, means.freedom, score)),
        worst=float(deviation[at]),
        predicted=float(predicted[at]),
        error=float(means.error[at]),
    )
