"""How far single points lie off the straight line between their neighbours: roughness, and points far off the others.

Noise and curvature add to it, so that roughness overstates the noise of a curve that bends.
"""

from __future__ import annotations

import numpy as np

FAR, MIN_LEFT = 8.0, 5  # see `far_off`


def misses(x_N: np.ndarray, y_N: np.ndarray) -> np.ndarray:
    """y of every inner point less the line between its neighbours, (N - 2,), in standard deviations of one point where
    all have the same. x ascends."""
    share = np.diff(x_N)[:-1] / (x_N[2:] - x_N[:-2])
    missed = y_N[1:-1] - (y_N[:-2] * (1 - share) + y_N[2:] * share)
    return missed / np.sqrt(1 + share**2 + (1 - share) ** 2)


def roughness(x_N: np.ndarray, y_N: np.ndarray) -> float:
    """Rms of `misses`: noise, and what the curve bends between neighbours; 0 for fewer than three points."""
    return float(np.sqrt((misses(x_N, y_N) ** 2).mean())) if len(x_N) > 2 else 0.0


def far_off(x_N: np.ndarray, y_N: np.ndarray) -> list[int]:
    """Inner points that miss their neighbours' line by more than `FAR` times the roughness without them, the farthest
    first; at least `MIN_LEFT` points are left. An end is none: it may be where a curve turns."""
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
