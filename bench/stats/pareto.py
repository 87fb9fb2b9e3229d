"""The Pareto frontier of noisy runs, and its selection bias: how much too good it looks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

FAR_OFF = 6.0  # standard errors; a run this much worse than the best cannot have been picked by chance


def pareto(x: Sequence[float], y: Sequence[float]) -> list[int]:
    """Return the indices of the points on the Pareto frontier, in order of x: those whose y (smaller is better) is
    smaller than that of all points of smaller or equal x."""
    order = sorted(range(len(x)), key=lambda i: (x[i], y[i]))
    kept: list[int] = []
    for i in order:
        if not kept or y[i] < y[kept[-1]]:
            kept.append(i)
    return kept


def frontier_bias(
    y: np.ndarray, noise: float | np.ndarray, members: Sequence[Sequence[int]], *, draws: int = 2000, seed: int = 0
) -> np.ndarray:
    """Return how much too good the best run of each group looks, because it was picked from noisy runs.

    Args:
        y: observed value of every run; smaller is better.
        noise: standard deviation of each value, or one for all.
        members: for each group, the indices of the runs from which its best one is picked.
        draws: number of simulated repetitions, in which noise is added to the observed values.

    Returns: for each group, the mean over repetitions of (noisy minimum - true value of the run picked), where the
        observed values are taken as true; (groups,), negative. Subtract it from the observed minimum.
    """
    rng = np.random.default_rng(seed)
    biases, spread = [], np.broadcast_to(noise, y.shape)
    for group in members:
        values = y[list(group)]
        again = values + rng.normal(0, 1, (draws, len(values))) * spread[list(group)]
        picked = again.argmin(axis=1)
        biases.append(float((again.min(axis=1) - values[picked]).mean()))
    return np.asarray(biases)
