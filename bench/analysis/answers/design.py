"""Which run to do next: where one more point would shrink an interval most for its compute.

For refits with quantity q and log error f(x), a new point at x with noise variance s2 would lower the variance of q by
cov(q, f(x))^2 / (var f(x) + s2): what a linear model makes of a normal posterior. Candidates are the family's budgets
and up to four times beyond its largest.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np

from bench.analysis.answers.answer import Answer
from bench.analysis.answers.ratio import factors, ratio
from bench.analysis.laws import Law
from bench.core.formatting import flops, percent, significant
from bench.stats.bootstrap import Resampled, variance_components
from bench.stats.forms import FIRST, SECOND

QUESTION = "Which run should be done next?"
CANDIDATES = 9
BEYOND = 4.0


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """One run that could be made. `shrink`: share of the interval's width that it would take away, on average."""

    family: str
    flops: float
    shrink: float

    @property
    def worth(self) -> float:
        """Share per FLOP."""
        return self.shrink / self.flops


def next_runs(laws: dict[str, Law]) -> list[Answer]:
    """For every pair of families: the run that shrinks the interval of their compute ratio most per FLOP."""
    found = []
    for a, b in combinations(laws.values(), 2):
        if ratio(a, b).estimate is None:  # nothing to shrink
            continue
        ranked = candidates(factors(a, b)[0], (a, b))
        if ranked:
            found.append(_answer(a, b, ranked))
    return found


def candidates(resampled: Resampled, pair: tuple[Law, Law]) -> list[Candidate]:
    """Runs of both families, best per FLOP first."""
    quantity = _tame(resampled.thetas[:, -1:])
    spread = variance_components(resampled.fit)
    s2 = spread.within + spread.between
    found = []
    for law, family in zip(pair, (FIRST, SECOND), strict=True):
        x = np.geomspace(law.range[0], BEYOND * law.range[1], CANDIDATES)
        with np.errstate(all="ignore"):
            curves = _tame(np.log(resampled.predictions(np.stack([x, np.full(len(x), family)]))))
        shared = (quantity * curves).mean(axis=0)
        lowered = shared**2 / (curves.var(axis=0) + s2) / max(float(quantity.var()), 1e-300)
        shrink = 1 - np.sqrt(1 - np.clip(lowered, 0, 1))
        found += [
            Candidate(family=law.family, flops=float(at), shrink=float(s)) for at, s in zip(x, shrink, strict=True)
        ]
    return sorted(found, key=lambda c: -c.worth)


def _tame(values: np.ndarray) -> np.ndarray:
    """Centred, with the outer 2 % of refits drawn in: a few wild ones would decide a variance."""
    low, high = np.nanquantile(values, [0.02, 0.98], axis=0)
    held = np.clip(np.nan_to_num(values, nan=0.0), low, high)
    return held - held.mean(axis=0)


def _answer(a: Law, b: Law, ranked: list[Candidate]) -> Answer:
    best = ranked[0]
    most = max(ranked, key=lambda c: c.shrink)
    sentence = (
        f"{_where(best, a, b)}: one more run there shrinks the interval by about {percent(best.shrink)} %, the most "
        "per FLOP"
    )
    sentence += " and of all." if most == best else f". At any price: {_where(most, a, b)}, {percent(most.shrink)} %."
    return Answer(
        question=QUESTION, subject=f"{b.family}'s compute to match {a.family}", verdict="yes", sentence=sentence,
        estimate=best.flops, unit="FLOP", n=a.runs + b.runs,
        extrapolated=max(1.0, best.flops / max(a.range[1], b.range[1])),
        basis="covariance of the refits of the shared law; a new run as noisy as the others",
    )  # fmt: skip


def _where(run: Candidate, a: Law, b: Law) -> str:
    """A run, and how far beyond its family's largest it lies."""
    beyond = run.flops / next(law for law in (a, b) if law.family == run.family).range[1]
    return f"{run.family} at {flops(run.flops)}" + (
        f" ({significant(beyond, 2)} times its largest budget)" if beyond > 1.05 else "")  # fmt: skip
