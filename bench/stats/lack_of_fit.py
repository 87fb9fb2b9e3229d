"""Lack-of-fit F test of a law against group means, with the noise between seeds as pure error.

A law that deviates from the group means by more than their noise has the wrong shape there, however narrow its
intervals; what is read off it then contradicts what was measured.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy import special

from bench.core.formatting import percent, significant

SIGNIFICANCE = 0.05  # p of the F test
MATERIAL = 0.05  # share of the error: a law that deviates by less is good enough to be read
Z_CONTRADICTION = 2.5  # standard errors by which two numbers must differ to contradict one another


@dataclass(frozen=True, kw_only=True, eq=False)
class GroupMeans:
    """Mean error over seeds at each x, in order of x.

    Attributes:
        x, error: of each group. noise: standard error of each mean, from repeated training.
        freedom: degrees of freedom behind the noise; 0 where nothing was repeated, so that it is not known.
    """

    x: np.ndarray
    error: np.ndarray
    noise: np.ndarray
    freedom: int

    def take(self, chosen: np.ndarray) -> GroupMeans:
        return GroupMeans(x=self.x[chosen], error=self.error[chosen], noise=self.noise[chosen], freedom=self.freedom)

    def reach(self, error: float, show: Callable[[float], str]) -> str:
        """A sentence: between which marks `error` is reached, and where it is lost again."""
        good = np.flatnonzero(self.error <= error)
        if not len(good):
            return "No mark reaches it."
        first = int(good[0])
        text = f"between {show(self.x[first - 1])} and {show(self.x[first])}" if first else f"by {show(self.x[0])}"
        lost = [show(x) for x, e in zip(self.x[first:], self.error[first:], strict=True) if e > error]
        return f"The marks reach it {text}" + (f", but not at {lost[-1]}." if lost else ".")


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

    @property
    def clause(self) -> str:
        p = "p < 0.001" if self.p < 0.001 else f"p = {significant(self.p, 2)}"
        said = f"says an error of {percent(self.predicted)} % where the mark has {percent(self.error)} %"
        return f"misses its own marks by up to {self.worst:.0%} of their error (it {said}; beyond seed noise, {p})"


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
    return LackOfFit(p=float(special.fdtrc(freedom, means.freedom, score)), worst=float(deviation[at]),
                  predicted=float(predicted[at]), error=float(means.error[at]))  # fmt: skip
