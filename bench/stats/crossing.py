"""Where two families' laws cross, with an interval from resampled trunks, or "cannot tell"."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bench.stats.bootstrap import LAW_LEVEL, Resampled

GRID = 200
FAR_OFF = 6.0  # standard errors: what is this much worse than the best cannot have been picked by chance
NEEDED = 0.95
"""Share of resamples that must agree on exactly one crossing, in one direction, inside the range of both families."""


@dataclass(frozen=True, kw_only=True)
class Crossing:
    """The answer. `x`, `low`, `high` are None unless `verdict` is "yes". `share`: resamples with one such crossing.

    `overtakes`: which of (first, second) has the smaller y (error) beyond the crossing.
    `leader`: the same, of the crossing of the fits where resamples disagree; `throughout`: of the whole range.
    """

    verdict: str
    x: float | None
    low: float | None
    high: float | None
    share: float
    overtakes: str | None
    reason: str
    leader: str | None = None
    throughout: bool = False


def crossing(
    first: Resampled, second: Resampled, *, names: tuple[str, str] = ("first", "second"), level: float = LAW_LEVEL
) -> Crossing:
    """Compare two families of one input inside the range of x that both cover; nothing is extrapolated."""
    low = max(first.fit.range[0], second.fit.range[0])
    high = min(first.fit.range[1], second.fit.range[1])
    if not low < high:
        return _cannot("their ranges of x do not overlap", 0.0)
    grid = np.geomspace(low, high, GRID)
    number = min(len(first.thetas), len(second.thetas))
    gaps = np.log(first.predictions(grid)[:number]) - np.log(second.predictions(grid)[:number])
    main = np.log(first.fit.predict(grid)) - np.log(second.fit.predict(grid))
    at_main = _once(main)
    found = [at for at in (_once(row) for row in gaps) if at is not None]
    if at_main is None:
        ahead = names[0] if main.mean() < 0 else names[1]
        share = float(np.mean([(row < 0).all() or (row > 0).all() for row in gaps]))
        if share < 0.5:
            return _cannot("the laws cross in some of the resamples and not in others", 1 - share)
        return _cannot(
            f"{ahead} is ahead throughout the common range in {share:.0%} of the resamples",
            1 - share,
            leader=ahead,
            throughout=True,
        )
    same = [place for place, falls in found if falls == at_main[1]]
    share = len(same) / number
    leader = names[0] if at_main[1] else names[1]
    if share < NEEDED:
        return _cannot(
            f"only {share:.0%} of the resamples cross just once with {leader} ahead beyond", share, leader=leader
        )
    places = grid[0] * np.exp(np.asarray(same) * np.log(grid[1] / grid[0]))
    ends = first.interval(np.log(places), level=level)
    return Crossing(
        verdict="yes",
        x=float(grid[0] * np.exp(at_main[0] * np.log(grid[1] / grid[0]))),
        low=float(np.exp(ends[0])),
        high=float(np.exp(ends[1])),
        share=share,
        overtakes=leader,
        leader=leader,
        reason=f"{share:.0%} of the resamples cross once, in this direction",
    )


def _once(gap: np.ndarray) -> tuple[float, bool] | None:
    """Place (in grid steps) of the only change of sign, and whether the gap falls there; None if not just one."""
    if not np.isfinite(gap).all():
        return None
    changes = np.flatnonzero(np.sign(gap[:-1]) * np.sign(gap[1:]) < 0)
    if len(changes) != 1:
        return None
    i = int(changes[0])
    return i + float(gap[i] / (gap[i] - gap[i + 1])), bool(gap[i] > 0)


def _cannot(reason: str, share: float, *, leader: str | None = None, throughout: bool = False) -> Crossing:
    return Crossing(
        verdict="cannot tell",
        x=None,
        low=None,
        high=None,
        share=share,
        overtakes=None,
        reason=reason,
        leader=leader,
        throughout=throughout,
    )


def pareto(x: Sequence[float], y: Sequence[float]) -> list[int]:
    """Indices of points that no point with as little x beats in y (smaller is better), in order of x."""
    order = sorted(range(len(x)), key=lambda i: (x[i], y[i]))
    kept: list[int] = []
    for i in order:
        if not kept or y[i] < y[kept[-1]]:
            kept.append(i)
    return kept


def frontier_bias(
    y: np.ndarray, noise: float | np.ndarray, members: Sequence[Sequence[int]], *, draws: int = 2000, seed: int = 0
) -> np.ndarray:
    """How much too good the best of each group looks, because it was picked from noisy runs.

    Args:
        y: observed values. noise: standard deviation of each, or of all. members: indices competing at each place.

    Returns: for each place, the mean of (noisy minimum - true value of the run picked), taking the observed values as
        true; negative. Subtract it from the observed minimum.
    """
    rng = np.random.default_rng(seed)
    biases, spread = [], np.broadcast_to(noise, y.shape)
    for group in members:
        values = y[list(group)]
        again = values + rng.normal(0, 1, (draws, len(values))) * spread[list(group)]
        picked = again.argmin(axis=1)
        biases.append(float((again.min(axis=1) - values[picked]).mean()))
    return np.asarray(biases)
