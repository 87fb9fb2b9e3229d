"""Compute-optimal model size from isoFLOP curves (loss over size at one compute budget): the minimum of each budget's
curve, and a power law through the minima."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from scipy import special
from scipy.interpolate import Akima1DInterpolator, PchipInterpolator

from bench.core.errors import UserError
from bench.core.formatting import compact
from bench.laws.bootstrap import LAW_LEVEL

SUBDIVISIONS = 25  # grid points between neighbouring sizes (Porian et al. 2024)
MIN_MINIMA, MIN_SIZES = 3, 4  # budgets with a minimum that a fit needs, and sizes that a budget needs
ONE_SIZE = 0.01  # sizes that differ relatively by less are one: counted in another way, or read off a figure
NOISE_AT = ((3.0, 0.002), (7.0, 0.05))
"""Standard deviation of a loss between seeds: (loss, standard deviation) at two losses, interpolated in logarithms
(Porian et al. 2024). It is assumed for every table: repeats in it are averaged, not used to estimate the noise. Where
the minima scatter about their line by more than it explains, that scatter widens the intervals."""


@dataclass(frozen=True, kw_only=True)
class Minimum:
    """The best model size at one compute budget, and the loss there. `spread`: standard deviation of the log of this
    size that noise between seeds causes."""

    budget: float
    size: float
    loss: float
    spread: float


@dataclass(frozen=True, kw_only=True)
class IsoFlop:
    """The law size* = coefficient × budget^exponent of the best model size at a compute budget.

    Attributes:
        low, high: interval of the exponent. It reflects the noise between seeds or, where that is larger, the scatter
            of the minima about the line.
        minima: the best size at each budget that was used.
        dropped: one text for each budget that was left out, with the reason.
        draws: number of simulated repetitions of the study.
        level: confidence level of intervals.
        lines: (exponent, log coefficient) of every repetition, (draws, 2).
    """

    exponent: float
    low: float
    high: float
    coefficient: float
    minima: tuple[Minimum, ...]
    dropped: tuple[str, ...]
    draws: int
    level: float
    lines: np.ndarray

    def predict(self, budget: float) -> float:
        """Return the best size at a budget, by the law."""
        return float(self.coefficient * budget**self.exponent)

    def interval(self, budget: float) -> tuple[float, float]:
        """Return (low, high), the interval of the best size at a budget."""
        sizes = np.exp(self.lines @ (np.log(budget), 1.0))
        low, high = np.quantile(sizes, [0.5 - self.level / 2, 0.5 + self.level / 2])
        return float(low), float(high)


def fit(
    budgets: np.ndarray,
    sizes: np.ndarray,
    losses: np.ndarray,
    *,
    draws: int = 500,
    level: float = LAW_LEVEL,
    seed: int = 0,
) -> IsoFlop:
    """Find the minimum of an Akima curve through (log size, log loss) for each budget, and fit a line through
    (log budget, log size*), where size* is the size at the minimum.

    A budget whose best size is the smallest or largest tried is left out and named, because its minimum is elsewhere.

    Args:
        budgets, sizes, losses: compute budget, model size and loss of every run, (n,).
        draws: number of simulated repetitions, from which intervals come.
        level: confidence level of intervals.

    Raises:
        UserError: fewer than three budgets with an interior minimum.
    """
    rng = np.random.default_rng(seed)
    budgets = _one_per_budget(budgets)
    minima, dropped, noisy = [], [], []
    for budget in np.unique(budgets):
        here = budgets == budget
        order = np.argsort(sizes[here])
        log_n, loss = np.log(sizes[here][order]), losses[here][order]
        log_n, loss = _one_per_size(log_n, loss)
        if len(log_n) < MIN_SIZES:
            dropped.append(f"budget {compact(budget)}: fewer than four sizes")
            continue
        (at,), (least,), (edge,) = _minima(log_n, np.log(loss)[:, None])
        if edge:
            dropped.append(f"budget {compact(budget)}: the best size is at the edge of those tried")
            continue
        noise = rng.normal(0, 1, (draws, len(loss))) * _noise(loss)
        noised = np.maximum(loss + noise, loss / 10)  # keeps losses positive that are far below those of `NOISE_AT`
        places, _, on_edge = _minima(log_n, np.log(noised).T)
        if on_edge.mean() > 0.5:
            dropped.append(f"budget {compact(budget)}: under seed noise the best size is mostly at the edge")
            continue
        spread = max(float(places.std()), float(np.diff(log_n).mean()) / 3)
        minima.append(Minimum(budget=float(budget), size=float(np.exp(at)), loss=float(np.exp(least)), spread=spread))
        noisy.append(at + spread * rng.normal(0, 1, draws))
    if len(minima) < MIN_MINIMA:
        why = "; ".join(dropped) or "there are too few budgets"
        raise UserError(
            f"{len(minima)} budgets have an interior minimum; an exponent needs {MIN_MINIMA} ({why}).",
            "Add smaller and larger models at each budget.",
        )
    log_c = np.log([m.budget for m in minima])
    slope, intercept = np.polyfit(log_c, np.log([m.size for m in minima]), 1)
    lines = np.polyfit(log_c, np.stack(noisy), 1).T
    lines = (slope, intercept) + (lines - (slope, intercept)) * _excess(log_c, minima, level)
    low, high = np.quantile(lines[:, 0], [0.5 - level / 2, 0.5 + level / 2])
    return IsoFlop(
        exponent=float(slope),
        low=float(low),
        high=float(high),
        coefficient=float(np.exp(intercept)),
        minima=tuple(minima),
        dropped=tuple(dropped),
        draws=draws,
        level=level,
        lines=lines,
    )


def _excess(log_c: np.ndarray, minima: Sequence[Minimum], level: float) -> float:
    """Return the factor by which intervals must be widened, at least 1: the width of a Student's t interval from the
    scatter of the minima about their line, divided by that of a normal interval from the minima's `spread`.

    Args:
        log_c: log budget of each minimum.
        level: confidence level of both intervals.
    """
    sizes, freedom = np.log([m.size for m in minima]), len(minima) - 2
    residuals = sizes - np.polyval(np.polyfit(log_c, sizes, 1), log_c)
    scatter, spread = (residuals**2).sum() / freedom, np.mean([m.spread**2 for m in minima])
    share = 0.5 + level / 2
    return max(1.0, float(np.sqrt(scatter / spread) * special.stdtrit(freedom, share) / special.ndtri(share)))


def residuals_by_budget(budgets: np.ndarray, sizes: np.ndarray, losses: np.ndarray) -> np.ndarray:
    """Return, for every run, its log loss minus the mean log loss of all runs at its budget, (n,). If any size has
    several runs at a budget, the mean is over runs of the same size and budget instead."""
    residual_N, log_loss = np.zeros(len(losses)), np.log(losses)
    for budget in np.unique(budgets):
        here = budgets == budget
        _, of = np.unique(sizes[here], return_inverse=True)
        of = of if np.bincount(of).max() > 1 else np.zeros_like(of)
        residual_N[here] = log_loss[here] - (np.bincount(of, log_loss[here]) / np.bincount(of))[of]
    return residual_N


def _one_per_budget(budgets: np.ndarray) -> np.ndarray:
    """Return the budget of every run, (n,), with budgets that differ relatively by less than `ONE_SIZE` replaced by
    their geometric mean: tables often hold the exact compute of each run, which differs slightly at one nominal
    budget."""
    order = np.argsort(budgets)
    log_c = np.log(budgets[order])
    if not np.isfinite(log_c).all():
        return budgets
    of = np.cumsum(np.diff(log_c, prepend=log_c[0]) > np.log1p(ONE_SIZE))
    means = np.bincount(of, log_c) / np.bincount(of)
    first = np.flatnonzero(np.diff(of, prepend=-1))
    spread = np.minimum.reduceat(log_c, first) < np.maximum.reduceat(log_c, first)
    made = np.empty_like(budgets, dtype=float)
    made[order] = np.where(spread[of], np.exp(means[of]), budgets[order])
    return made


def _one_per_size(log_n: np.ndarray, loss: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the distinct log sizes and the loss of each, the mean over its runs (the least would be biased low). Sizes
    must ascend; those that differ relatively by less than `ONE_SIZE` are one."""
    of, first = np.zeros(len(log_n), dtype=int), 0
    for at in range(1, len(log_n)):
        new = log_n[at] - log_n[first] > np.log1p(ONE_SIZE)
        first = at if new else first
        of[at] = of[at - 1] + new
    number = np.bincount(of)
    return np.bincount(of, log_n) / number, np.bincount(of, loss) / number


def _minima(log_n: np.ndarray, log_loss: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the minimum of each of several curves, three arrays (curves,): the log size at the minimum, the log loss
    there, and whether the minimum is at the smallest or largest size. `log_loss`: (sizes, curves).

    An Akima curve through close sizes whose losses differ by chance is steep there, and may swing far below all points.
    The minimum of a parabola lies below the lowest point by less than that point lies below the higher of its
    neighbours. A curve that exceeds this by more than noise is replaced by one that never leaves the range of its
    points (PCHIP).
    """
    grid = np.concatenate([np.linspace(a, b, SUBDIVISIONS, endpoint=False) for a, b in pairwise(log_n)] + [log_n[-1:]])
    curves = Akima1DInterpolator(log_n, log_loss)(grid)
    low, every = log_loss.argmin(axis=0), np.arange(log_loss.shape[1])
    lowest = log_loss[low, every]
    beside = np.fmax(log_loss[np.fmax(low - 1, 0), every], log_loss[np.fmin(low + 1, len(log_n) - 1), every])
    wild = curves.min(axis=0) < lowest - (beside - lowest) - _noise(np.exp(lowest)) / np.exp(lowest)
    if wild.any():
        curves[:, wild] = PchipInterpolator(log_n, log_loss[:, wild])(grid)
    at = curves.argmin(axis=0)
    return grid[at], curves.min(axis=0), (at == 0) | (at == len(grid) - 1)


def _noise(loss: np.ndarray) -> np.ndarray:
    (low, small), (high, large) = NOISE_AT
    return np.exp(np.interp(np.log(loss), np.log([low, high]), np.log([small, large])))
