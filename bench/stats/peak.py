"""The peak of a noisy curve: a polynomial is fitted to repeated measurements, and its maximum gets an interval.

Every run is one measurement of y at one place x, and belongs to a repeat. All runs of a repeat (one seed) share an
offset, because they share initial weights and the order of images. Ordinary least squares on x, x² and one offset for
each repeat gives the maximum. Its interval is Fieller's: the places at which the slope does not differ from zero. The
noise is estimated from the residuals, which contain the spread between repeats and the misfit of the polynomial; where
the misfit is larger than the spread explains, it alone is used, with its own few degrees of freedom.

Measurements far below the peak are left out (`near_peak`): accuracy over the logarithm of a learning rate falls off
steeply there, and more steeply above the best rate than below it. Where five places are left, x³ is fitted too, since a
parabola through an asymmetric peak is off to one side. The interval also includes the distance to the maximum of the
parabola through the highest mean and its two neighbours, which shows how much depends on the form of the curve. In 250
simulated sweeps for each setting (seven places, two and three seeds), 95 % intervals contain the true place of a
parabola's peak in 94 to 99 %, and of a peak with a cubic fall above it in 90 to 95 %. Where the curvature triples at
the peak, estimates are off by a fifth of a place, and the intervals contain the true place in 37 to 85 %.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy import special

from bench.stats.intervals import POINT_LEVEL, t_quantile

NEIGHBOURS = 2  # a curve is fitted to at most this many places on each side of the highest mean
FALL = 3.0  # how far below the highest mean, in the unit of y, a second neighbour may lie and still be fitted
MIN_PLACES = 3  # distinct places that a parabola needs
CUBIC_PLACES = 5  # distinct places from which on a cubic term is fitted, for an asymmetric peak
BEYOND = 1.5  # how far beyond the measurements, or from the maximum, an end of the interval is searched (unit of x)
STEPS = 2_001  # grid points of that search on each side
ROUNDING = 1e-9  # a root whose imaginary part is smaller counts as real
MISFIT_P = 0.05  # p-value of an F test below which the polynomial is said to miss the means


@dataclass(frozen=True, kw_only=True)
class Peak:
    """The maximum of a fitted polynomial, with an interval of its place (its x).

    Attributes:
        place: x of the maximum.
        top: y of the maximum.
        shape: coefficients of (x - `centre`), its square and, of a cubic, its cube.
        centre: x from which the polynomial's powers are taken.
        low, high: interval of `place`. An end is infinite where the measurements do not bound it, and NaN where the
            noise is unknown.
        error: standard error of `place` by the delta method.
        df: degrees of freedom of the noise estimate.
        misfit: whether the polynomial misses the mean y at some places by more than the spread of repeats explains.
    """

    place: float
    top: float
    shape: tuple[float, ...]
    centre: float
    low: float
    high: float
    error: float
    df: float
    misfit: bool

    @property
    def bounded(self) -> bool:
        return math.isfinite(self.low) and math.isfinite(self.high)

    def at(self, x: float) -> float:
        """Return y of the fitted curve at x."""
        return self.top + _rise(self.shape, x - self.centre) - _rise(self.shape, self.place - self.centre)


def between(
    x_N: Sequence[float], y_N: Sequence[float], repeat_N: Sequence[int], *, level: float = POINT_LEVEL
) -> tuple[float, float]:
    """Return two places (x) between which the peak lies, whatever the shape of the curve, as long as it has only one
    peak.

    They are, on each side of the place with the highest mean, the nearest place whose mean is significantly lower
    (Bonferroni over places); -inf or inf without such a place. This bounds the peak even where the polynomial of `peak`
    cannot, because the polynomial leaves out measurements far below the peak.

    Args:
        x_N, y_N: single measurements.
        repeat_N: the repeat (seed) that each measurement belongs to.
        level: confidence level.
    """
    y = np.asarray(y_N, float)
    places, group = np.unique(np.asarray(x_N, float), return_inverse=True)
    _, repeat = np.unique(np.asarray(repeat_N), return_inverse=True)
    design = np.column_stack([np.eye(len(places))[group], np.eye(repeat.max() + 1)[repeat]])
    inverse = np.linalg.pinv(design.T @ design)
    found = inverse @ design.T @ y
    df = len(y) - int(np.linalg.matrix_rank(design))
    if df <= 0:
        return -math.inf, math.inf
    residual = y - design @ found
    best = int(np.argmax(found[: len(places)]))
    contrast = np.zeros((len(places), design.shape[1]))
    contrast[:, best] = 1.0
    contrast[np.arange(len(places)), np.arange(len(places))] -= 1.0
    error = np.sqrt(np.einsum("kp,pq,kq->k", contrast, inverse, contrast) * float(residual @ residual) / df)
    lower = contrast @ found > t_quantile(df, 1 - (1 - level) / max(1, len(places) - 1)) * error
    lower[best] = False  # the highest mean is not lower than itself, even where there is no noise at all
    below, above = places[:best][lower[:best]], places[best + 1 :][lower[best + 1 :]]
    return float(below[-1]) if len(below) else -math.inf, float(above[0]) if len(above) else math.inf


def near_peak(means_P: Sequence[float]) -> range:
    """Return the indices of the places to which a curve is fitted: the place with the highest mean, one neighbour on
    each side, and on each side a second neighbour if its mean is at most `FALL` below the highest. `means_P`: mean y in
    order of place; the range ends before a NaN."""
    best = int(np.nanargmax(means_P))
    low = high = best
    for step in range(1, NEIGHBOURS + 1):
        for side in (-1, 1):
            place, end = best + side * step, low if side < 0 else high
            if not 0 <= place < len(means_P) or abs(place - end) > 1 or math.isnan(means_P[place]):
                continue
            if step == 1 or means_P[best] - means_P[place] <= FALL:
                low, high = min(low, place), max(high, place)
    return range(low, high + 1)


def peak(
    x_N: Sequence[float], y_N: Sequence[float], repeat_N: Sequence[int], *, level: float = POINT_LEVEL
) -> Peak | None:
    """Fit a polynomial to single measurements and return its maximum. None if there are fewer than three distinct
    places (x), or if the curve has no maximum near them.

    Args:
        x_N, y_N: single measurements.
        repeat_N: the repeat (seed) that each measurement belongs to.
        level: confidence level of the interval.
    """
    x, y, repeat = np.asarray(x_N, float), np.asarray(y_N, float), np.asarray(repeat_N)
    places, group = np.unique(x, return_inverse=True)
    if len(places) < MIN_PLACES:
        return None
    degree = 3 if len(places) >= CUBIC_PLACES else 2
    centre = float(places.mean())
    levels = (repeat[:, None] == np.unique(repeat)[None, :]).astype(float)
    design = np.column_stack([(x - centre)[:, None] ** np.arange(1, degree + 1), levels])
    found = np.linalg.lstsq(design, y, rcond=None)[0]
    shape = found[:degree]
    vertex, reach = _maximum(shape), BEYOND + float(np.ptp(places)) / 2
    if vertex is None or abs(vertex) > reach:
        return None
    variance, df, misfit = _noise(design, y, y - design @ found, group, levels)
    low, high, error = math.nan, math.nan, math.nan
    if df:
        covariance = np.linalg.pinv(design.T @ design)[:degree, :degree] * variance
        low, high = _flat(shape, covariance, t_quantile(df, level), vertex, reach=reach)
        form = _of_three(places - centre, [float(y[group == number].mean()) for number in range(len(places))]) - vertex
        low, high = vertex - math.hypot(vertex - low, form), vertex + math.hypot(high - vertex, form)
        error = float(_slope_error(covariance, np.array([vertex]))[0] / -_bend(shape, vertex))
    return Peak(
        place=centre + vertex,
        top=float(found[degree:].mean()) + _rise(shape, vertex),
        shape=tuple(map(float, shape)),
        centre=centre,
        low=centre + low,
        high=centre + high,
        error=error,
        df=df,
        misfit=misfit,
    )


def cut(found: Peak, ends: tuple[float, float]) -> Peak:
    """Return the peak with its interval cut to the range `ends`; the interval still contains the peak's place, even if
    that is outside the range."""
    low, high = max(found.low, ends[0]), min(found.high, ends[1])
    return replace(found, low=min(low, found.place), high=max(high, found.place))


def _of_three(places: np.ndarray, means: Sequence[float]) -> float:
    """Return the place of the maximum of the parabola through the highest mean and its two neighbours, not beyond
    these."""
    best = min(max(int(np.argmax(means)), 1), len(places) - 2)
    curve = np.polyfit(places[best - 1 : best + 2], means[best - 1 : best + 2], 2)
    at = -curve[1] / (2 * curve[0]) if curve[0] < 0 else places[int(np.argmax(means))]
    return float(np.clip(at, places[best - 1], places[best + 1]))


def _rise(shape: np.ndarray | Sequence[float], x: float) -> float:
    """Return the polynomial with coefficients `shape`, without a constant term, at a distance x from the centre."""
    return math.fsum(c * x**power for power, c in enumerate(shape, 1))


def _slopes(degree: int, x: np.ndarray) -> np.ndarray:
    """Return the derivatives of x, x², x³, …: one row for each x, one column for each power up to `degree`."""
    powers = np.arange(1, degree + 1)
    return np.asarray(powers * x[:, None] ** (powers - 1))


def _bend(shape: np.ndarray, x: float) -> float:
    """Return the second derivative of the polynomial at a distance x from the centre."""
    return math.fsum(power * (power - 1) * c * x ** (power - 2) for power, c in enumerate(shape, 1) if power > 1)


def _maximum(shape: np.ndarray) -> float | None:
    """Return the place of the polynomial's maximum, as a distance from the centre; None if it has none."""
    roots = np.roots((shape * np.arange(1, len(shape) + 1))[::-1])
    tops = [float(root.real) for root in roots if abs(root.imag) < ROUNDING and _bend(shape, float(root.real)) < 0]
    return tops[0] if tops else None


def _slope_error(covariance: np.ndarray, x: np.ndarray) -> np.ndarray:
    slopes = _slopes(len(covariance), x)
    return np.sqrt(np.maximum(0.0, np.einsum("np,pq,nq->n", slopes, covariance, slopes)))


def _flat(shape: np.ndarray, covariance: np.ndarray, t: float, vertex: float, *, reach: float) -> tuple[float, float]:
    """Return the range of places around the maximum where the slope does not differ significantly from zero (Fieller's
    interval, for any polynomial), as distances from the centre. An end is infinite where the slope does not become
    significant within `reach` of the centre or `BEYOND` of the maximum.

    Args:
        covariance: of the coefficients `shape`.
        t: quantile of Student's t, in standard errors of the slope.
        vertex: place of the maximum, as a distance from the centre.
    """
    ends = []
    for side, sign in ((min(-reach, vertex - BEYOND), 1.0), (max(reach, vertex + BEYOND), -1.0)):
        x = np.linspace(vertex, side, STEPS)
        away = sign * (_slopes(len(shape), x) @ shape) > t * _slope_error(covariance, x)
        ends.append(float(x[away.argmax()]) if away.any() else -sign * math.inf)
    return ends[0], ends[1]


def _noise(
    design: np.ndarray, y: np.ndarray, residual: np.ndarray, group: np.ndarray, levels: np.ndarray
) -> tuple[float, int, bool]:
    """Return (variance of one measurement, its degrees of freedom, whether the polynomial misses the mean y of the
    places significantly); (NaN, 0, False) without degrees of freedom.

    Args:
        design: design matrix of the polynomial's fit, one row per measurement.
        residual: residuals of this fit.
        group: index of each measurement's place.
        levels: the columns of `design` that give each repeat its offset.
    """
    df = len(y) - int(np.linalg.matrix_rank(design))
    if df <= 0:
        return math.nan, 0, False
    free = np.column_stack([(group[:, None] == np.unique(group)[None, :]).astype(float), levels])
    pure = y - free @ np.linalg.lstsq(free, y, rcond=None)[0]
    df_pure = len(y) - int(np.linalg.matrix_rank(free))
    missed, df_missed = float(residual @ residual - pure @ pure), df - df_pure
    if df_pure > 0 and df_missed > 0 and (spread := float(pure @ pure) / df_pure) > 0:
        ratio = missed / df_missed / spread
        if ratio > 1 and float(special.fdtrc(df_missed, df_pure, ratio)) < MISFIT_P:
            return missed / df_missed, df_missed, True
    return float(residual @ residual) / df, df, False


def ratio(a: Peak, b: Peak, *, level: float = POINT_LEVEL) -> tuple[float, float, float]:
    """Return the distance in x from the peak b to the peak a, and the ends of its interval: (distance, low, high). If x
    is a logarithm, this is the log of a ratio.

    The half-widths of both intervals are added in quadrature. Measurements at two budgets may share seeds; this is
    ignored, which makes the interval wider rather than narrower. Infinite ends stay infinite.
    """
    middle = a.place - b.place
    low = math.hypot(a.place - a.low, b.high - b.place)
    high = math.hypot(a.high - a.place, b.place - b.low)
    return middle, middle - low, middle + high
