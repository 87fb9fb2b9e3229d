"""Roughness of a curve: how far its points lie off the straight line between their neighbours. Finds outliers by it.

Noise and curvature both add to roughness, so it overestimates the noise of a curve that bends.
"""

from __future__ import annotations

import numpy as np

FAR, MIN_LEFT = 8.0, 5  # see `far_off`


def misses(x_N: np.ndarray, y_N: np.ndarray) -> np.ndarray:
    """Return y of every inner point minus the line between its neighbours, (N - 2,), scaled. x must ascend.

    The scaling gives each difference the standard deviation of a single point, if all points have the same.
    """
    share = np.diff(x_N)[:-1] / (x_N[2:] - x_N[:-2])
    missed = y_N[1:-1] - (y_N[:-2] * (1 - share) + y_N[2:] * share)
    return missed / np.sqrt(1 + share**2 + (1 - share) ** 2)


def roughness(x_N: np.ndarray, y_N: np.ndarray) -> float:
    """Return the rms distance of inner points from the line between their neighbours (`misses`), which contains noise
    and curvature; 0 for fewer than three points."""
    return float(np.sqrt((misses(x_N, y_N) ** 2).mean())) if len(x_N) > 2 else 0.0


def far_off(x_N: np.ndarray, y_N: np.ndarray) -> list[int]:
    """Return the indices of outliers: inner points that lie off the line between their neighbours by more than `FAR`
    times the roughness of the other points. They are removed one by one, the farthest first, while more than `MIN_LEFT`
    points are left. The first and last points never count as outliers, because a curve may turn there."""
    left, outlying = list(range(len(x_N))), []
    while len(left) > MIN_LEFT:
        missed = np.abs(misses(x_N[left], y_N[left]))
        worst = int(missed.argmax()) + 1
        without = left[:worst] + left[worst + 1 :]
        if not missed[worst - 1] > FAR * roughness(x_N[without], y_N[without]):
            break
        outlying.append(left[worst])
        left = without
    return outlying
