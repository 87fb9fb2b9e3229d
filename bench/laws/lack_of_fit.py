"""Lack-of-fit F test of a law against group means (over seeds), with the noise between seeds as pure error.

A law that deviates from the group means by more than their noise has the wrong shape there, however narrow its
intervals.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import special

SIGNIFICANCE = 0.05  # p-value of the F test below which a law may fail
MATERIAL = 0.05  # a deviation of less than this fraction of the error is accepted
Z_CONTRADICTION = 2.5  # two numbers contradict each other if they differ by at least this many standard errors


@dataclass(frozen=True, kw_only=True, eq=False)
class GroupMeans:
    """Mean errors over seeds, one for each distinct x, in order of x. Arrays are (groups,).

    Attributes:
        x: x of each group, which is compute or another size of a run.
        error: mean error of each group.
        noise: standard error of each mean, from repeated training.
        freedom: degrees of freedom of `noise`; 0 where nothing was repeated and the noise is unknown.
    """

    x: np.ndarray
    error: np.ndarray
    noise: np.ndarray
    freedom: float

    def take(self, chosen: np.ndarray) -> GroupMeans:
        return GroupMeans(x=self.x[chosen], error=self.error[chosen], noise=self.noise[chosen], freedom=self.freedom)


@dataclass(frozen=True, kw_only=True)
class LackOfFit:
    """The result of a lack-of-fit test of a law against group means.

    Attributes:
        p: p-value of the F test.
        worst: largest deviation of the law from a mean error, as a fraction of that mean.
        predicted, error: the error that the law predicts for the group with this deviation, and the group's mean error.
    """

    p: float
    worst: float
    predicted: float
    error: float

    @property
    def fails(self) -> bool:
        return self.p < SIGNIFICANCE and self.worst >= MATERIAL


def lack_of_fit(means: GroupMeans, predicted: np.ndarray, *, parameters: int) -> LackOfFit | None:
    """Test whether a law misses the group means by more than their noise. Return None without repeated trainings, or
    without more groups than parameters.

    Args:
        predicted: error that the law predicts for each group, (groups,).
        parameters: number of fitted parameters of the law.
    """
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
