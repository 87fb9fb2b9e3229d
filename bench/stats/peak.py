"""Finds where a curve has its peak: a polynomial through repeated readings, and its maximum with an interval.

Every run is one reading at one place, and carries its repeat's own level (the same seed at several places shares its
initial weights and its order of images). Ordinary least squares of place, place² and one level for each repeat gives
the maximum; its interval is Fieller's, the places at which the slope does not differ from zero. Its noise is that of
the residuals, which hold the repeats' spread and what the polynomial misses; where it misses more than the spread
explains, the misses alone count, with their own few degrees of freedom.

Readings far below the peak are left out (`near_peak`): accuracy over the logarithm of a learning rate falls off steeply
there, and more steeply above the best rate than below it. Where five places are left the cube of the place is in the
fit too, since a parabola through a crooked peak is off to one side. How far the parabola through the highest mean and
its two neighbours has its maximum elsewhere is part of the interval, as a measure of what the form decides. In 250
simulated sweeps each, seven places, two and three seeds, 95 % intervals hold the place of a parabola's peak in 94 to
99 %, of a peak that falls off by a cube above it in 90 to 95 %. Where the bend triples at the peak they are off by a
fifth of a place, and hold it in 37 to 85 %.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy import special

from bench.stats.intervals import POINT_LEVEL, t_quantile

NEIGHBOURS = 2  # places on either side of the highest that a curve is fitted to at most
FALL = 3.0  # below the highest mean, in the unit of y, that the second of them may lie
MIN_PLACES = 3  # of a parabola
CUBIC_PLACES = 5  # from which a peak may be crooked
BEYOND = 1.5  # places outside the readings, or from the maximum, within which an end of the interval is looked for
STEPS = 2_001  # on the way there
ROUNDING = 1e-9  # of roots
MISFIT_P = 0.05  # below which the polynomial is said to miss the means


@dataclass(frozen=True, kw_only=True)
class Peak:
    """The maximum `top` of a polynomial, at `place`; `low` and `high` are the interval of the place.

    The ends are infinite where the readings do not bound it, and NaN where nothing is known of the noise.

    Attributes:
        shape: coefficients of (x - `centre`), its square and perhaps its cube.
        error: standard error of the place by the delta method.
        df: degrees of freedom of the noise.
        misfit: the polynomial misses the means by more than their spread explains.
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
        """The height of the curve."""
        return self.top + _rise(self.shape, x - self.centre) - _rise(self.shape, self.place - self.centre)


def between(
    x_N: Sequence[float], y_N: Sequence[float], repeat_N: Sequence[int], *, level: float = POINT_LEVEL
) -> tuple[float, float]:
    """The places that a peak lies between, whatever the curve, as long as it has one peak: the nearest on either side
    of the highest mean whose mean is lower by more than chance (Bonferroni over places). Infinite where none is.

    A polynomial about the peak knows nothing of readings far below it, and may leave open what these decide.
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
    lower[best] = False  # of no noise at all it would not be lower, either
    below, above = places[:best][lower[:best]], places[best + 1 :][lower[best + 1 :]]
    return float(below[-1]) if len(below) else -math.inf, float(above[0]) if len(above) else math.inf


def near_peak(means_P: Sequence[float]) -> range:
    """The places about the highest mean that a curve is fitted to: the neighbours on either side, and the next ones
    where they are no more than `FALL` below it. Means are in order of their places; a NaN ends the range."""
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
    """The peak of single readings; None where there are fewer than three places, or the curve has no maximum
    near them.

    Args:
        repeat_N: which repeat (seed) each reading is of.
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
    """A peak whose interval goes no further than between these places, and as far as the peak at least."""
    low, high = max(found.low, ends[0]), min(found.high, ends[1])
    return replace(found, low=min(low, found.place), high=max(high, found.place))


def _of_three(places: np.ndarray, means: Sequence[float]) -> float:
    """The maximum of the parabola through the highest mean and its neighbours."""
    best = min(max(int(np.argmax(means)), 1), len(places) - 2)
    curve = np.polyfit(places[best - 1 : best + 2], means[best - 1 : best + 2], 2)
    at = -curve[1] / (2 * curve[0]) if curve[0] < 0 else places[int(np.argmax(means))]
    return float(np.clip(at, places[best - 1], places[best + 1]))


def _rise(shape: np.ndarray | Sequence[float], x: float) -> float:
    """The curve at x from the centre, without its level."""
    return math.fsum(c * x**power for power, c in enumerate(shape, 1))


def _slopes(degree: int, x: np.ndarray) -> np.ndarray:
    """Derivatives of x, x², x³ at each x: one row each."""
    powers = np.arange(1, degree + 1)
    return np.asarray(powers * x[:, None] ** (powers - 1))


def _bend(shape: np.ndarray, x: float) -> float:
    """The second derivative."""
    return math.fsum(power * (power - 1) * c * x ** (power - 2) for power, c in enumerate(shape, 1) if power > 1)


def _maximum(shape: np.ndarray) -> float | None:
    """The place of the curve's only maximum, from the centre."""
    roots = np.roots((shape * np.arange(1, len(shape) + 1))[::-1])
    tops = [float(root.real) for root in roots if abs(root.imag) < ROUNDING and _bend(shape, float(root.real)) < 0]
    return tops[0] if tops else None


def _slope_error(covariance: np.ndarray, x: np.ndarray) -> np.ndarray:
    slopes = _slopes(len(covariance), x)
    return np.sqrt(np.maximum(0.0, np.einsum("np,pq,nq->n", slopes, covariance, slopes)))


def _flat(shape: np.ndarray, covariance: np.ndarray, t: float, vertex: float, *, reach: float) -> tuple[float, float]:
    """The places about the vertex at which the slope does not differ from zero: Fieller's interval, of any polynomial.
    Infinite where it does not within `reach` of the centre, or of the vertex."""
    ends = []
    for side, sign in ((min(-reach, vertex - BEYOND), 1.0), (max(reach, vertex + BEYOND), -1.0)):
        x = np.linspace(vertex, side, STEPS)
        away = sign * (_slopes(len(shape), x) @ shape) > t * _slope_error(covariance, x)
        ends.append(float(x[away.argmax()]) if away.any() else -sign * math.inf)
    return ends[0], ends[1]


def _noise(
    design: np.ndarray, y: np.ndarray, residual: np.ndarray, group: np.ndarray, levels: np.ndarray
) -> tuple[float, int, bool]:
    """(variance of one reading, its degrees of freedom, whether the polynomial misses the means)."""
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
    """The distance from b's place to a's, with its interval: each side's own, added in quadrature. The readings of two
    budgets share their seeds, which is not counted: the interval is wide rather than narrow.

    Infinite ends stay infinite.
    """
    middle = a.place - b.place
    low = math.hypot(a.place - a.low, b.high - b.place)
    high = math.hypot(a.high - a.place, b.place - b.low)
    return middle, middle - low, middle + high
