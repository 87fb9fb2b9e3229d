"""Whether a law passes through its own marks: an F test of lack of fit against pure error, the noise between seeds.

A law that misses its marks by more than their noise has the wrong shape there, however narrow its intervals; what is
read off it then contradicts what was measured.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy import special

from bench.core.formatting import percent, significant

SMALL = 0.05  # p of the F test
MATERIAL = 0.05  # share of the error: a law that misses by less is good enough to be read
SURELY = 2.5  # standard errors by which two numbers must differ to contradict one another


@dataclass(frozen=True, kw_only=True, eq=False)
class Marks:
    """Means over seeds that a law goes through, in order of x.

    Attributes:
        x, error: of each mark. noise: standard deviation of each error, from repeated training.
        freedom: degrees of freedom behind the noise; 0 where nothing was repeated, so that it is not known.
    """

    x: np.ndarray
    error: np.ndarray
    noise: np.ndarray
    freedom: int

    def take(self, chosen: np.ndarray) -> Marks:
        return Marks(x=self.x[chosen], error=self.error[chosen], noise=self.noise[chosen], freedom=self.freedom)

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
class Misfit:
    """A law beside its marks. `worst`: the largest miss as a share of the mark's error, where the law says `predicted`
    and the mark `error`. `p`: how often noise alone would miss like this."""

    p: float
    worst: float
    predicted: float
    error: float

    @property
    def fails(self) -> bool:
        return self.p < SMALL and self.worst >= MATERIAL

    @property
    def clause(self) -> str:
        p = "p < 0.001" if self.p < 0.001 else f"p = {significant(self.p, 2)}"
        said = f"says an error of {percent(self.predicted)} % where the mark has {percent(self.error)} %"
        return f"misses its own marks by up to {self.worst:.0%} of their error (it {said}; beyond seed noise, {p})"


def misfit(marks: Marks, predicted: np.ndarray, *, parameters: int) -> Misfit | None:
    """The law's miss; None where there is nothing to test it with: no repeats, or no more marks than parameters."""
    freedom = len(marks.x) - parameters
    if not marks.freedom or freedom < 1:
        return None
    off = np.log(marks.error / predicted)
    score = float(((off * marks.error / marks.noise) ** 2).sum()) / freedom
    miss = np.abs(marks.error - predicted) / marks.error
    at = int(miss.argmax())
    return Misfit(p=float(special.fdtrc(freedom, marks.freedom, score)), worst=float(miss[at]),
                  predicted=float(predicted[at]), error=float(marks.error[at]))  # fmt: skip
