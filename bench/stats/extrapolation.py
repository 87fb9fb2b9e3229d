"""Extrapolation intervals from the procedure's own record: what it would have missed before.

The procedure (forms, loss, weights) is refitted to the points up to earlier origins, and its errors beyond each are
seen: rolling-origin evaluation (Tashman 2000). An error grows about in proportion to the log distance, so an origin
leaves one rate, the rms error per unit of log distance at about the requested distance. The half-width of an
interval is Student's t, with one degree of freedom less than origins, times `IMPROVEMENT` (more data, smaller errors),
times the mean rate, in which an origin counts half for every octave that it lies earlier, times the log distance.
Resampling inside one analysis cannot give this: errors beyond the data are bias of the form, not scatter of the points.

Where several forms are given, the prediction is the median of their log predictions. None is chosen by the record,
which would then flatter it (the winner's curse). The constants were set on learning curves of tabular data and on
simulated ones; `tools/measure_extrapolation.py` measures coverage on any published curves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from bench.core.errors import UserError
from bench.stats.averaging import Averaged
from bench.stats.bootstrap import LAW_LEVEL, Resampled, quantiles
from bench.stats.fit import REFIT_FTOL, FormFit, Points, fit
from bench.stats.forms import BROKEN, M3, M4, ZHAI, Form
from bench.stats.intervals import t_quantile

BENDING: tuple[Form, ...] = (ZHAI, M3, M4, BROKEN)
"""Forms of one input that bend; power and power-floor are special cases of m3 and zhai."""
MIN_ORIGINS = 3
MAX_ORIGINS = 14
ORIGINS_PER_OCTAVE = 2
MIN_PLACES = 5  # distinct x that the first origin is fitted to, where several forms are
MIN_DISTANCE = 0.3  # of log x, about half an octave: errors nearer by are scatter, not extrapolation
WINDOW = (0.7, 1.3)  # of the requested distance: held-out points that are judged
SAME_PLACE = 1e-9  # of log x
POINTS_HALF_LIFE = 2.0  # octaves: the earliest points say least about what comes next (Choshen et al. 2024)
ORIGINS_HALF_LIFE = 1.0  # octaves
IMPROVEMENT = 0.9  # rate of the next error / mean rate of the record, whose origins saw fewer points
STARTS = 60
MAX_BINS = 200  # of log x, that a longer table is averaged over


def place(x: np.ndarray) -> np.ndarray:
    """Where points lie on the way to larger scale, (n,): x, or the product of the first two inputs."""
    return np.prod(np.atleast_2d(x)[:2], axis=0)


@dataclass(frozen=True, kw_only=True, eq=False)
class Origin:
    """The error of a procedure that saw the points up to `end`.

    Attributes:
        end: largest place fitted.
        points: how many were.
        octaves: how far it lies before the end of the data.
        distance: log distance of every group mean beyond it.
        error: log observed - log predicted, of each form, there.
    """

    end: float
    points: int
    octaves: float
    distance: np.ndarray
    error: dict[str, np.ndarray]

    @cached_property
    def errors(self) -> np.ndarray:
        """Error of the prediction, which is the median over forms."""
        return np.median(list(self.error.values()), axis=0)

    def nearest(self, distance: float) -> tuple[float, float]:
        """Distance and error of the group mean nearest to a log distance."""
        at = int(np.abs(self.distance - distance).argmin())
        return float(self.distance[at]), float(self.errors[at])

    def rate(self, distance: float) -> tuple[float, float]:
        """Rms error per unit of log distance at about `distance`, or at the farthest there is; and where that was."""
        top = min(distance, float(self.distance.max()))
        near = (self.distance >= WINDOW[0] * top) & (self.distance <= WINDOW[1] * top)
        if not near.any():
            near = self.distance == self.distance[np.abs(self.distance - top).argmin()]
        rates = self.errors[near] / np.maximum(self.distance[near], MIN_DISTANCE)
        return float(np.sqrt((rates**2).mean())), top


@dataclass(frozen=True, kw_only=True)
class PastError:
    """How far off a procedure was `factor` times beyond each of `origins`: `median_error`, relative."""

    origins: int
    factor: float
    median_error: float


@dataclass(frozen=True, kw_only=True, eq=False)
class Bands:
    """Intervals of y at several x, (n, 2) each: within <= total <= one_run, as sets. NaN where there is no record.

    Attributes:
        y: predictions, (n,).
        within: by resampling: noise and, where several forms were resampled, their difference.
        total: that, and the record beyond the data or the spread of forms inside.
        one_run: what one more run would measure, total and the scatter of points.
        reach: how many times beyond the largest point (below 1: below the smallest), 1 inside.
    """

    y: np.ndarray
    within: np.ndarray
    total: np.ndarray
    one_run: np.ndarray
    reach: np.ndarray


@dataclass(frozen=True, kw_only=True, eq=False)
class Forecast:
    """A prediction beyond the data with the record of the procedure that makes it.

    Attributes:
        fits: to all points, one per form.
        origins: latest first.
        scatter: standard deviation of one point's log y, with `freedom` degrees.
    """

    fits: tuple[FormFit, ...]
    origins: tuple[Origin, ...]
    scatter: float
    freedom: int

    @property
    def has_record(self) -> bool:
        return len(self.origins) >= MIN_ORIGINS

    def of(self, forms: Sequence[Form]) -> Forecast:
        """The forecast by some of the forms."""
        names = {form.name for form in forms}
        origins = [replace(o, error={n: e for n, e in o.error.items() if n in names}) for o in self.origins]
        least = min(2, len(forms))
        return replace(
            self,
            fits=tuple(made for made in self.fits if made.form.name in names),
            origins=tuple(o for o in origins if len(o.error) >= least),
        )

    def before(self, number: int) -> Forecast:
        """The record as it was at the origin of that number: from earlier origins, on points that were seen by then."""
        end = self.origins[number].end
        kept = []
        for origin in self.origins[number + 1 :]:
            seen = origin.distance <= np.log(end / origin.end) + SAME_PLACE
            if origin.distance[seen].max(initial=0.0) >= MIN_DISTANCE:
                errors = {name: error[seen] for name, error in origin.error.items()}
                octaves = float(np.log2(end / origin.end))
                kept.append(replace(origin, octaves=octaves, distance=origin.distance[seen], error=errors))
        return replace(self, origins=tuple(kept))

    def judging(self, forms: Sequence[Form]) -> tuple[Origin, ...]:
        """Origins from which all of the forms were fitted."""
        return tuple(o for o in self.origins if all(form.name in o.error for form in forms))

    def log_predict(self, x: np.ndarray) -> np.ndarray:
        """Median over forms of log y, at x (inputs, n)."""
        return np.median([made.log_predict(x) for made in self.fits], axis=0)

    def distance(self, x: np.ndarray) -> np.ndarray:
        """Log distance of x (inputs, n) beyond the largest point; 0 inside, negative below the smallest."""
        asked, seen = np.atleast_2d(x)[:2], self.fits[0].points.x[:2]
        asked, seen = (np.log(np.vstack([v, v.prod(axis=0)])) for v in (asked, seen))
        above, below = asked - seen.max(axis=1, keepdims=True), asked - seen.min(axis=1, keepdims=True)
        beyond, short = above.max(axis=0), below.min(axis=0)
        return np.where(beyond > SAME_PLACE, beyond, np.where(short < -SAME_PLACE, short, 0.0))

    def half_width(self, distance: float, *, level: float = LAW_LEVEL) -> float:
        """Half of the interval of log y at a log distance beyond the data; 0 inside, NaN where there is no record."""
        if distance == 0:
            return 0.0
        if distance < 0 or not self.has_record:
            return np.nan
        asked = max(distance, MIN_DISTANCE)
        return t_quantile(len(self.origins) - 1, level) * IMPROVEMENT * self.rate(asked) * asked

    def rate(self, distance: float) -> float:
        """Mean rms error per unit of log distance at about `distance`, over origins; recent ones count more."""
        weights = 0.5 ** (np.array([origin.octaves for origin in self.origins]) / ORIGINS_HALF_LIFE)
        rates = np.array([origin.rate(distance)[0] for origin in self.origins])
        return float(rates @ weights / weights.sum())

    def past_error(self, distance: float) -> PastError:
        """The record at about a log distance, or at the farthest there is."""
        rates, tops = np.array([origin.rate(max(distance, MIN_DISTANCE)) for origin in self.origins]).T
        return PastError(
            origins=len(self.origins),
            factor=float(np.exp(np.median(tops))),
            median_error=float(np.expm1(np.median(rates * tops))),
        )

    def bands(self, resampled: Resampled | Averaged, x: np.ndarray, *, level: float = LAW_LEVEL) -> Bands:
        """Predictions at x (inputs, n) with their intervals; `resampled` gives those by resampling."""
        centre = self.log_predict(x)
        with np.errstate(divide="ignore"):
            draws = np.log(resampled.predictions(x))
        ends = np.array([quantiles(column, level) for column in draws.T])
        return self.widen(centre, np.maximum((ends - centre[:, None]) * [-1, 1], 0.0), x, level=level)

    def widen(self, centre: np.ndarray, noise: np.ndarray, x: np.ndarray, *, level: float = LAW_LEVEL) -> Bands:
        """Bands about `centre`, log y, (n,). noise: half-widths of sampling noise downwards and upwards, (n, 2)."""
        distance = self.distance(x)
        record = np.array([self.half_width(float(d), level=level) for d in distance])
        every = np.stack([made.log_predict(x) for made in self.fits])
        spread = np.stack([centre - every.min(axis=0), every.max(axis=0) - centre], axis=1)
        other = np.where((distance == 0)[:, None], np.maximum(spread, 0.0), record[:, None])
        total = np.maximum(noise, other)  # NaN where there is no record
        one_run = np.hypot(total, t_quantile(self.freedom, level) * self.scatter)
        within, total, one_run = (np.exp(centre[:, None] + half * [-1, 1]) for half in (noise, total, one_run))
        return Bands(y=np.exp(centre), within=within, total=total, one_run=one_run, reach=np.exp(distance))


def forecast(
    points: Points,
    forms: Sequence[Form] = BENDING,
    *,
    loss: str = "squares",
    delta: float | None = None,
    half_life: float | None = POINTS_HALF_LIFE,
) -> Forecast:
    """Fit every form that the points allow, to all points and from earlier origins.

    Args:
        half_life: octaves over which the weight of earlier points halves; None: all weigh the same.

    Raises:
        UserError: no form can be fitted.
    """
    data = _condensed(points) if len(forms) > 1 else points
    at = place(data.x)
    means_x, means = _group_means(data)
    ends = np.unique(at)
    least = MIN_PLACES if len(forms) > 1 else max(4, forms[0].size + 1)

    def fitted(part: Points) -> list[FormFit]:
        here = place(part.x)
        weight = None if half_life is None else 0.5 ** (np.log2(here.max() / here) / half_life)
        made = []
        for form in forms:
            try:
                made.append(fit(part, form, loss=loss, delta=delta, weight=weight, ftol=REFIT_FTOL, max_starts=STARTS))
            except UserError:
                continue
        return made

    main = fitted(data)
    if not main:
        fit(data, forms[0], max_starts=1)  # raises what prevents a fit
    origins, seen = [], {len(ends)}
    for step in range(1, MAX_ORIGINS + 1):
        upto = int(np.searchsorted(ends, ends[-1] * 2 ** (-step / ORIGINS_PER_OCTAVE) * (1 + 1e-9), side="right"))
        if upto in seen or upto < least:
            continue
        seen.add(upto)
        end = float(ends[upto - 1])
        earlier = fitted(data.take(at <= end))
        beyond = place(means_x) > end
        distance = np.log(place(means_x[:, beyond]) / end)
        if len(earlier) < min(2, len(forms)) or distance.max() < 0.99 * MIN_DISTANCE:
            continue
        error = {made.form.name: means[beyond] - made.log_predict(means_x[:, beyond]) for made in earlier}
        origins.append(
            Origin(
                end=end,
                points=int((at <= end).sum()),
                octaves=float(np.log2(ends[-1] / end)),
                distance=distance,
                error=error,
            )
        )
    centre = np.median([made.log_predict(points.x) for made in main], axis=0)
    freedom = max(1, len(points) - int(np.median([made.form.size for made in main])))
    scatter = float(np.sqrt(((np.log(points.y) - centre) ** 2).sum() / freedom))
    return Forecast(fits=tuple(main), origins=tuple(origins), scatter=scatter, freedom=freedom)


def _group_means(points: Points) -> tuple[np.ndarray, np.ndarray]:
    """Distinct x, (inputs, groups), in order of place; mean log y of each."""
    distinct, group = np.unique(points.x, axis=1, return_inverse=True)
    means = np.bincount(group.ravel(), np.log(points.y)) / np.bincount(group.ravel())
    order = np.argsort(place(distinct), kind="stable")
    return distinct[:, order], means[order]


def _condensed(points: Points) -> Points:
    """A long table of one input as means over narrow bins of log x."""
    if points.x.shape[0] > 1 or len(points) <= MAX_BINS:
        return points
    log_x = np.log(points.x[0])
    edges = np.linspace(log_x.min(), log_x.max(), MAX_BINS + 1)
    _, of = np.unique(np.clip(np.searchsorted(edges, log_x, side="right"), 1, MAX_BINS), return_inverse=True)
    count = np.bincount(of)
    x, y = (np.exp(np.bincount(of, values) / count) for values in (log_x, np.log(points.y)))
    return Points(x=x[None], y=y, cluster=np.arange(len(x)))
