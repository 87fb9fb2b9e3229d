"""A bound on the error of linear interpolation between the measured points of a curve.

Between two points at a distance h, at the fraction w of the way, a line misses a smooth curve f by
w (1 - w) / 2 · h² · |f''|. The curvature |f''| is estimated by leaving an inner point out: the line between its
neighbours, at distances h1 and h2, misses it by h1 h2 / 2 · |f''|. Curves bend most in their first interval, where no
point can be left out; therefore `BEND` times the largest curvature found is allowed everywhere. Noise in the points
adds to the misses, so the curvature is overestimated rather than underestimated.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

BEND = 1.5
"""Factor on the largest curvature found. For power laws and logistic curves without noise, at random places between
horizons 1.5 to 4 times apart, the error of the line is within the bound at 94 % of the places; with a factor of 1, at
67 %."""
MIN_INNER_SHARE = 0.25  # inner points with h1 h2 below this fraction of h² show mostly their own noise


def curvatures(x_N: Sequence[float], y_N: Sequence[float]) -> tuple[np.ndarray, np.ndarray]:
    """Return two arrays (N - 2,): the curvature |f''| at every inner point, estimated by leaving the point out, and the
    product h1 h2 of the distances to its neighbours. x must ascend."""
    x, y = np.asarray(x_N, dtype=float), np.asarray(y_N, dtype=float)
    before, after = np.diff(x)[:-1], np.diff(x)[1:]
    missed = y[1:-1] - (y[:-2] * after + y[2:] * before) / (before + after)
    return 2 * np.abs(missed) / (before * after), before * after


def error(x_N: Sequence[float], y_N: Sequence[float], at: float, *, usual: float | None = None) -> float:
    """Return how far the straight line between the two points around x = `at` may be off, in the unit of y; 0 at a
    point itself and for a single point. x must ascend.

    Args:
        usual: the curvature |f''| of similar curves, used for a curve of two points. None: such a curve is assumed to
            be monotone, which bounds the error by the difference of the two points.
    """
    x, y = np.asarray(x_N, dtype=float), np.asarray(y_N, dtype=float)
    if len(x) < 2:
        return 0.0
    right = int(np.clip(np.searchsorted(x, at), 1, len(x) - 1))
    width = x[right] - x[right - 1]
    share = float(np.clip((at - x[right - 1]) / width, 0.0, 1.0))
    if share in (0.0, 1.0):
        return 0.0
    curvature_N, spans = curvatures(x_N, y_N)
    wide = curvature_N[spans >= MIN_INNER_SHARE * width**2]
    curvature = usual if not len(curvature_N) else float((wide if len(wide) else curvature_N).max())
    if curvature is None:
        return max(share, 1 - share) * float(abs(y[right] - y[right - 1]))
    return BEND * share * (1 - share) / 2 * float(width) ** 2 * curvature
