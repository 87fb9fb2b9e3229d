"""Straight lines between the measured points of a curve, and how far off they may be.

Within an interval of width h, at share w of it, a line misses a smooth curve by w (1 - w) / 2 · h² · |f''|. Leaving an
inner point out shows the curvature: the line between its neighbours, at distances h1 and h2, misses it by
h1 h2 / 2 · |f''|. Chance in the points adds to what is missed, so that the curvature is overstated rather than
understated.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def curvatures(x_N: Sequence[float], y_N: Sequence[float]) -> np.ndarray:
    """|f''| at every point, by leaving it out; NaN at both ends. x ascends."""
    x, y = np.asarray(x_N, dtype=float), np.asarray(y_N, dtype=float)
    found_N = np.full(len(x), np.nan)
    for at in range(1, len(x) - 1):
        before, after = x[at] - x[at - 1], x[at + 1] - x[at]
        missed = y[at] - (y[at - 1] * after + y[at + 1] * before) / (before + after)
        found_N[at] = 2 * abs(missed) / (before * after)
    return found_N


def error(x_N: Sequence[float], y_N: Sequence[float], at: float, *, usual: float | None = None) -> float:
    """How far the line between the two points around `at` may be off; 0 at a point itself.

    The larger curvature of the two points counts; at an end that of the inner one. Where neither has any, the curve has
    two points: then `usual`, the curvature of curves like it, and without that only monotony, which bounds the error by
    the difference of the points.
    """
    x, y = np.asarray(x_N, dtype=float), np.asarray(y_N, dtype=float)
    right = int(np.clip(np.searchsorted(x, at), 1, max(1, len(x) - 1)))
    if len(x) < 2:
        return 0.0
    width = x[right] - x[right - 1]
    share = float(np.clip((at - x[right - 1]) / width, 0.0, 1.0))
    if share in (0.0, 1.0):
        return 0.0
    known = curvatures(x_N, y_N)[[right - 1, right]]
    curvature = usual if np.isnan(known).all() else float(np.nanmax(known))
    if curvature is None:
        return max(share, 1 - share) * float(abs(y[right] - y[right - 1]))
    return share * (1 - share) / 2 * width**2 * curvature
