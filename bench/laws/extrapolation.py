"""Extrapolation intervals, from the errors that extrapolations made on other curves and on earlier parts of this curve.

Two sources say how far off a prediction may be. Each gives an error per unit distance: the rms error of log y per unit
of log distance beyond the data (`rate` in names).

- Other curves (`ExtrapolationPrior.usual_rate`): predictions missed by more on curves that fall steeply, are rough, or
  have few places (distinct x). A curve without earlier predictions gets its interval from this alone.
- This curve: the procedure (forms, loss, weights) is refitted to the points up to an earlier x, the origin, and its
  errors beyond the origin are measured: rolling-origin evaluation (Tashman 2000). Each origin gives one error per unit
  distance, measured at about the requested distance. Its weight halves for every octave that it lies earlier.

Their mean square, in which other curves weigh as much as `PRIOR_ORIGINS` origins, is the squared scale of a Student's t
with `FREEDOM` degrees of freedom: a moderated variance (Smyth 2004). Where the errors were mostly to one side, the
interval is longer on that side. Resampling one analysis cannot give such an interval, because errors beyond the data
are bias of the form, not scatter of the points.

With several forms, the law is the median of their log predictions, all with equal weight. None is chosen by its earlier
errors, because these would then look too small (the winner's curse). The constants were set on one half of the curves
that `tools/extrapolation_split.csv` lists; `tools/measure_extrapolation.py` measures coverage on any published curves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy import special

from bench.core.errors import UserError
from bench.laws.averaging import Averaged
from bench.laws.bootstrap import LAW_LEVEL, Resampled, quantiles
from bench.laws.fit import REFIT_FTOL, FormFit, Points, fit
from bench.laws.forms import M3, M4, POWER_FLOOR, ZHAI, Form
from bench.laws.roughness import FAR, far_off, roughness

BENDING: tuple[Form, ...] = (POWER_FLOOR, ZHAI, M3, M4)
"""Forms of one input whose curve bends in log-log coordinates. With bnsl1 in place of power-floor, predictions missed
1.1 to 1.2 times as much."""
MIN_PLACES = 4  # distinct x that an origin needs, and the data for an interval beyond them
PRIOR_ORIGINS = 2.0  # the weight of other curves, in units of one origin of this curve
PRIOR_SLOPE, PRIOR_ROUGHNESS = 0.2, 0.8
"""Errors per unit distance on other curves, per unit of their slope and of their roughness."""
PRIOR_PLACES = 8  # the number of places at which they hold; they are in proportion to 1 / (places - 2)
FREEDOM = 3  # degrees of freedom of Student's t for errors in units of their scale
LEAN = 0.25  # log of the factor on the half-width on one side, if all origins missed to that side
MAX_ORIGINS = 14
ORIGINS_PER_OCTAVE = 2
MIN_DISTANCE = 0.3  # log distance, about half an octave: errors at smaller distances are scatter, not extrapolation
WINDOW = (0.7, 1.3)  # held-out points within these multiples of the requested distance are judged
SAME_PLACE = 1e-9  # difference of log x up to which two x count as equal
POINTS_HALF_LIFE = 2.0  # octaves: the earliest points say least about what comes next (Choshen et al. 2024)
ORIGINS_HALF_LIFE = 1.0  # octaves over which the weight of an origin halves
IMPROVEMENT = 0.9  # ratio of the next error per unit distance to that of the origins, which had fewer points
STARTS = 60  # starting points of each form's fit
REACH = 10.0  # the x that a given y takes is searched up to this many times the largest x of the data
GRID = 241  # grid points of that search
MAX_BINS = 200  # a longer table is averaged over this many bins of log x


def misses_quantile(level: float) -> float:
    """Return the two-sided quantile, at a confidence `level`, of Student's t with `FREEDOM` degrees of freedom, which
    extrapolation errors in units of their scale are assumed to follow."""
    return float(special.stdtrit(FREEDOM, 0.5 + level / 2))


def place(x: np.ndarray) -> np.ndarray:
    """Return the place of each point x (inputs, n), (n,): x itself or, for several inputs, the product of the first
    two. "Earlier" and "beyond" refer to it."""
    return np.prod(np.atleast_2d(x)[:2], axis=0)


@dataclass(frozen=True, kw_only=True, eq=False)
class ExtrapolationPrior:
    """Properties of a curve's points that predict its extrapolation error, as measured on other curves.

    Attributes:
        places: number of distinct x.
        slope: for each form, |d log y / d log x| one octave beyond the points.
        roughness: of log y (`roughness.roughness`); with several inputs, rms of the residuals of the fits.
    """

    places: int
    slope: Mapping[str, float]
    roughness: float

    @property
    def usual_rate(self) -> float:
        """Rms error of log y per unit of log distance beyond the data that is usual for curves like this one."""
        slope = float(np.median(list(self.slope.values())))
        rate = float(np.hypot(PRIOR_SLOPE * slope, PRIOR_ROUGHNESS * self.roughness))
        return rate * (PRIOR_PLACES - 2) / max(1, self.places - 2)

    def of(self, names: set[str]) -> ExtrapolationPrior:
        return replace(self, slope={name: slope for name, slope in self.slope.items() if name in names})


@dataclass(frozen=True, kw_only=True, eq=False)
class ForecastOrigin:
    """The errors that fits to the points up to an earlier x, the origin, make beyond it. A group mean is the mean log y
    of all points at one x.

    Attributes:
        end: the origin: the largest x fitted (the largest `place`, for several inputs).
        points: number of points fitted.
        octaves: distance from `end` to the end of the data, in octaves.
        prior: properties of the fitted points.
        distance: log distance beyond `end` of every later group mean, (groups,).
        error: for each form, log observed - log predicted at these group means, (groups,).
    """

    end: float
    points: int
    octaves: float
    prior: ExtrapolationPrior
    distance: np.ndarray
    error: dict[str, np.ndarray]

    @cached_property
    def errors(self) -> np.ndarray:
        """Errors of the prediction, which is the median over forms, (groups,)."""
        return np.median(list(self.error.values()), axis=0)

    def nearest(self, distance: float) -> tuple[float, float]:
        """Return (log distance, error) of the group mean whose log distance beyond the origin is nearest to
        `distance`."""
        at = int(np.abs(self.distance - distance).argmin())
        return float(self.distance[at]), float(self.errors[at])

    def rates(self, distance: float) -> tuple[np.ndarray, float]:
        """Return (errors, log distance): the errors per unit of log distance of the group means at about `distance`,
        (n,), or at the largest distance if none is that far; and the log distance that was used."""
        top = min(distance, float(self.distance.max()))
        near = (self.distance >= WINDOW[0] * top) & (self.distance <= WINDOW[1] * top)
        if not near.any():
            near = self.distance == self.distance[np.abs(self.distance - top).argmin()]
        return self.errors[near] / np.maximum(self.distance[near], MIN_DISTANCE), top


@dataclass(frozen=True, kw_only=True)
class PastError:
    """The errors of predictions that were made from earlier origins, that is, from the points up to an earlier x.

    Attributes:
        origins: number of origins.
        factor: x at which the errors were measured, as a multiple of the origin's x (median over origins).
        median_error: relative error of y (median over origins).
    """

    origins: int
    factor: float
    median_error: float


@dataclass(frozen=True, kw_only=True, eq=False)
class Bands:
    """Predictions and three intervals of y at each of n values of x. Intervals are (n, 2), each contained in the next;
    NaN where the data support none.

    Beyond the data, `total` comes from extrapolation errors alone: they include the noise of the fit, and resampling a
    few points gives intervals that are sometimes too narrow and sometimes absurdly wide.

    Attributes:
        y: predictions, (n,).
        within: interval by resampling, inside the data only: noise and, where several forms were resampled, their
            disagreement.
        total: inside the data, the wider of `within` and the spread of the forms; beyond them, extrapolation errors.
        one_run: interval for the result of one more run: `total` and the scatter of single runs.
        reach: (n,); beyond the data, x divided by their largest x; below the data, x divided by their smallest x; 1
            inside.
    """

    y: np.ndarray
    within: np.ndarray
    total: np.ndarray
    one_run: np.ndarray
    reach: np.ndarray

    def with_those_of(self, other: Bands, *, top: float) -> Bands:
        """Return these predictions with the smallest intervals that contain both these and the other bands' intervals,
        cut at `top`, an upper limit of y."""
        pairs = ((name, getattr(self, name), getattr(other, name)) for name in ("within", "total", "one_run"))
        return replace(
            self,
            **{
                name: np.minimum(np.stack([np.minimum(a, b)[:, 0], np.maximum(a, b)[:, 1]], axis=1), top)
                for name, a, b in pairs
            },
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class Forecast:
    """A law that predicts beyond the data, with the errors that its procedure made from earlier origins.

    Attributes:
        fits: fits to all points, one per form.
        origins: the errors of fits to the points up to earlier x, latest x first.
        prior: properties of all points that predict extrapolation errors.
        scatter: standard deviation of one run's log y about the law. It is estimated from runs at one x, and from
            roughness, which weighs as much as `PRIOR_ORIGINS` further runs.
        withheld: the reason why intervals beyond the points are withheld, whatever the points show; None: they are not.
    """

    fits: tuple[FormFit, ...]
    origins: tuple[ForecastOrigin, ...]
    prior: ExtrapolationPrior
    scatter: float
    withheld: str | None = None

    @property
    def answers(self) -> bool:
        """Whether the law gives intervals beyond the points."""
        return self.withheld is None and self.prior.places >= MIN_PLACES

    @cached_property
    def grid(self) -> np.ndarray:
        """Values of x among which the x of a given y is searched: the range of the data, and up to `REACH` times beyond
        it if the law gives intervals there."""
        first, last = self.fits[0].range
        return np.geomspace(first, last * (REACH if self.answers else 1.0), GRID)

    def of(self, forms: Sequence[Form]) -> Forecast:
        """Return the same forecast made with some of the forms only."""
        names = {form.name for form in forms}
        origins = [
            replace(o, prior=o.prior.of(names), error={n: e for n, e in o.error.items() if n in names})
            for o in self.origins
        ]
        least = min(2, len(forms))
        return replace(
            self,
            fits=tuple(made for made in self.fits if made.form.name in names),
            origins=tuple(o for o in origins if len(o.error) >= least),
            prior=self.prior.of(names),
        )

    def before(self, number: int) -> Forecast:
        """Return the forecast with only the errors that were known at one of its origins: those of earlier origins, on
        points up to that one.

        Args:
            number: index into `origins`.
        """
        end = self.origins[number].end
        kept = []
        for origin in self.origins[number + 1 :]:
            seen = origin.distance <= np.log(end / origin.end) + SAME_PLACE
            if origin.distance[seen].max(initial=0.0) >= MIN_DISTANCE:
                errors = {name: error[seen] for name, error in origin.error.items()}
                octaves = float(np.log2(end / origin.end))
                kept.append(replace(origin, octaves=octaves, distance=origin.distance[seen], error=errors))
        return replace(self, origins=tuple(kept), prior=self.origins[number].prior, withheld=None)

    def judging(self, forms: Sequence[Form]) -> tuple[ForecastOrigin, ...]:
        """Return the origins at which all of these forms could be fitted."""
        return tuple(o for o in self.origins if all(form.name in o.error for form in forms))

    def log_predict(self, x: np.ndarray) -> np.ndarray:
        """Return the predicted log y at x (inputs, n), (n,): the median over forms."""
        return np.median([made.log_predict(x) for made in self.fits], axis=0)

    def distance(self, x: np.ndarray) -> np.ndarray:
        """Return the log distance of x (inputs, n) beyond the largest point, (n,); 0 inside the data, negative below
        the smallest point."""
        asked, seen = np.atleast_2d(x)[:2], self.fits[0].points.x[:2]
        asked, seen = (np.log(np.vstack([v, v.prod(axis=0)])) for v in (asked, seen))
        above, below = asked - seen.max(axis=1, keepdims=True), asked - seen.min(axis=1, keepdims=True)
        beyond, short = above.max(axis=0), below.min(axis=0)
        return np.where(beyond > SAME_PLACE, beyond, np.where(short < -SAME_PLACE, short, 0.0))

    def half_width(self, distance: float, *, level: float = LAW_LEVEL) -> float:
        """Return the half-width of the interval of log y at a log distance beyond the data: the geometric mean of its
        lower and upper side (`sides`). 0 inside the data (distance 0); NaN below them (negative distance) and where
        the law gives no interval."""
        if distance == 0:
            return 0.0
        if distance < 0 or not self.answers:
            return np.nan
        asked = max(distance, MIN_DISTANCE)
        return misses_quantile(level) * self.expected_rate(asked) * asked

    def sides(self, distance: float, *, level: float = LAW_LEVEL) -> np.ndarray:
        """Return how far the interval of log y extends below and above the prediction, (2,), at a log distance beyond
        the data."""
        half = self.half_width(distance, level=level)
        return half * np.exp(self.lean(max(distance, MIN_DISTANCE)) * np.array([-1, 1])) if half else np.zeros(2)

    def expected_rate(self, distance: float) -> float:
        """Return the expected rms error of log y per unit of log distance, at about `distance` beyond the data. It is
        estimated from other curves and from this curve's origins."""
        known = self._weights.sum()
        record = IMPROVEMENT * self.rate(distance) if len(self.origins) else 0.0
        squares = PRIOR_ORIGINS * self.prior.usual_rate**2 + known * record**2
        return float(np.sqrt(squares / (PRIOR_ORIGINS + known)))

    def lean(self, distance: float) -> float:
        """Return how asymmetric the interval is: the log of the factor on its upper side, from -LEAN (longer below) to
        LEAN (longer above). It follows the mean error of the origins."""
        expected = self.expected_rate(distance)
        if not len(self.origins) or not expected:
            return 0.0
        bias = float(np.average([o.rates(distance)[0].mean() for o in self.origins], weights=self._weights))
        return LEAN * float(np.clip(bias / expected, -1, 1))

    def rate(self, distance: float) -> float:
        """Return the rms error of log y per unit of log distance at about `distance` beyond the origins: a mean over
        origins, in which later origins weigh more."""
        rates = [np.sqrt((origin.rates(distance)[0] ** 2).mean()) for origin in self.origins]
        return float(np.average(rates, weights=self._weights))

    @property
    def _weights(self) -> np.ndarray:
        return 0.5 ** (np.array([origin.octaves for origin in self.origins]) / ORIGINS_HALF_LIFE)

    def past_error(self, distance: float) -> PastError:
        """Summarise the errors of predictions from earlier origins at about a log `distance` beyond them, or at the
        largest distance at which there are errors."""
        past = [origin.rates(max(distance, MIN_DISTANCE)) for origin in self.origins]
        missed = [np.sqrt((rates**2).mean()) * top for rates, top in past]
        return PastError(
            origins=len(past),
            factor=float(np.exp(np.median([top for _, top in past]))),
            median_error=float(np.expm1(np.median(missed))),
        )

    def bands(self, resampled: Resampled | Averaged, x: np.ndarray, *, level: float = LAW_LEVEL) -> Bands:
        """Return predictions at x (inputs, n) with their intervals. `resampled`: refits, for the intervals inside the
        data."""
        centre = self.log_predict(x)
        with np.errstate(divide="ignore"):
            draws = np.log(resampled.predictions(x))
        ends = np.array([quantiles(column, level) for column in draws.T])
        return self.widen(centre, np.maximum((ends - centre[:, None]) * [-1, 1], 0.0), x, level=level)

    def widen(self, centre: np.ndarray, noise: np.ndarray, x: np.ndarray, *, level: float = LAW_LEVEL) -> Bands:
        """Return bands around given predictions.

        Args:
            centre: predicted log y, (n,).
            noise: half-widths of sampling noise in log y, downwards and upwards, (n, 2).
            x: where the predictions are made, (inputs, n).
        """
        distance = self.distance(x)
        beyond = np.array([self.sides(float(d), level=level) for d in distance])  # NaN where there is no interval
        every = np.stack([made.log_predict(x) for made in self.fits])
        spread = np.stack([centre - every.min(axis=0), every.max(axis=0) - centre], axis=1)
        inside = (distance == 0)[:, None]
        total = np.where(inside, np.maximum(spread, noise), beyond)
        noise = np.where(inside, noise, np.nan)  # beyond the data, extrapolation errors include the noise
        one_run = np.hypot(total, misses_quantile(level) * self.scatter)
        within, total, one_run = (np.exp(centre[:, None] + half * [-1, 1]) for half in (noise, total, one_run))
        return Bands(y=np.exp(centre), within=within, total=total, one_run=one_run, reach=np.exp(distance))

    def departure(self) -> float | None:
        """Return the error (log observed - log predicted) with which the latest origin predicts the last group mean, if
        it is outside the interval of one run that was predicted there; None if it is inside, or without origins."""
        if not self.origins:
            return None
        before, error = self.before(0), float(self.origins[0].errors[-1])
        sides = before.sides(float(self.origins[0].distance[-1]))
        below, above = np.hypot(sides, misses_quantile(LAW_LEVEL) * before.prior.roughness)
        return error if error > above or error < -below else None


@dataclass(frozen=True, kw_only=True)
class Inverse:
    """The x at which one more run would have a given y.

    Attributes:
        x: the x at which the law falls to y.
        low, high: the x at which the lower and the upper end of the interval of one run fall to y.

    Each is 0 if the curve is below y from the start, at the smallest x searched; infinite if it stays above y.
    """

    x: float
    low: float
    high: float


def reached(x_N: np.ndarray, bands: Bands, wanted: float) -> Inverse:
    """Return the x at which one more run would have the y `wanted`, by inverting the law and the interval of one run.

    The interval of the law itself would hold the truth too rarely, because a run scatters about the law
    (results/reference/coverage/extrapolation.md).

    Args:
        x_N: values of x among which the result is interpolated, ascending.
        bands: predictions and intervals at `x_N`.
    """
    known = np.isfinite(bands.one_run).all(axis=1)
    curves = np.log(np.stack([bands.y, *bands.one_run.T])[:, known])
    x, low, high = np.exp(invert(np.log(x_N[known]), curves, np.log([wanted]))[:, 0]).tolist()
    return Inverse(x=x, low=low, high=high)


def invert(log_x_N: np.ndarray, curves_CN: np.ndarray, wanted_W: np.ndarray) -> np.ndarray:
    """Return the log x where each of C falling curves first reaches each of the values `wanted_W`, (C, W), by linear
    interpolation; -inf where a curve begins below the value, inf where it does not reach it, NaN for a curve with NaN
    or infinite values."""
    log_x_CW = np.full((len(curves_CN), len(wanted_W)), np.nan)
    for row, curve in enumerate(curves_CN):
        falling = np.minimum.accumulate(curve)  # only the first time that a value is reached counts
        if np.isfinite(falling).all():
            log_x_CW[row] = np.interp(-wanted_W, -falling, log_x_N, left=-np.inf, right=np.inf)
    return log_x_CW


def forecast(
    points: Points,
    forms: Sequence[Form] = BENDING,
    *,
    loss: str = "squares",
    delta: float | None = None,
    half_life: float | None = POINTS_HALF_LIFE,
) -> Forecast:
    """Fit every form that the points allow: to all points, and to the points up to each of several earlier x (origins).

    Args:
        loss, delta: see `fit.fit`.
        half_life: octaves over which the weight of earlier points halves; None: all weigh the same.

    Raises:
        UserError: no form can be fitted.
    """
    data = _condensed(points) if len(forms) > 1 else points
    at = place(data.x)
    means_x, means = _group_means(data)
    ends = np.unique(at)
    least = MIN_PLACES if len(forms) > 1 else max(MIN_PLACES, forms[0].size + 1)

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
        fit(data, forms[0], max_starts=1)  # raises the error that says why it cannot be fitted
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
            ForecastOrigin(
                end=end,
                points=int((at <= end).sum()),
                octaves=float(np.log2(ends[-1] / end)),
                prior=_prior_of(earlier),
                distance=distance,
                error=error,
            )
        )
    shown = _prior_of(main)
    return Forecast(fits=tuple(main), origins=tuple(origins), prior=shown, scatter=_scatter(data, shown.roughness))


def far_off_runs(points: Points) -> np.ndarray:
    """Return which points (of one input) are outliers, (n,) bool: all points at an inner x whose median y is far off
    the medians at neighbouring x (`roughness.far_off`), and single points far off the median of the three or more
    points at their x."""
    distinct, group = np.unique(np.log(points.x[0]), return_inverse=True)
    log_y, count = np.log(points.y), np.bincount(group)
    middle = log_y[np.argsort(group)][np.cumsum(count) - 1]  # fast for an x with one run; the others are set below
    several = np.flatnonzero(count > 1)
    if len(several):
        of = np.split(np.argsort(group, kind="stable"), np.cumsum(count)[:-1])
        middle[several] = [np.median(log_y[of[place]]) for place in several]
    far = far_off(distinct, middle)
    kept = np.delete(np.arange(len(distinct)), far)
    usual = roughness(distinct[kept], middle[kept])
    return np.isin(group, far) | ((count[group] > 2) & (np.abs(log_y - middle[group]) > FAR * usual) & (usual > 0))


def _prior_of(fits: Sequence[FormFit]) -> ExtrapolationPrior:
    """Return the properties that predict the extrapolation error of these fits, which are of the same points."""
    points = fits[0].points
    means_x, means = _group_means(points)
    if len(points.x) == 1:
        rough = roughness(np.log(means_x[0]), means)
    else:  # with several inputs, points next to each other in place need not be neighbours: use the fit's residuals
        freedom = max(1, len(points) - int(np.median([made.form.size for made in fits])))
        rough = float(np.sqrt((np.median([made.residuals for made in fits], axis=0) ** 2).sum() / freedom))
    end = np.stack([points.x.max(axis=1), points.x.max(axis=1) * 2 ** (1 / len(points.x))], axis=1)
    slope = {made.form.name: float(abs(np.diff(made.log_predict(end))[0]) / np.log(2)) for made in fits}
    return ExtrapolationPrior(places=len(np.unique(place(points.x))), slope=slope, roughness=rough)


def _scatter(points: Points, rough: float) -> float:
    """Return the standard deviation of one run's log y about the law (`Forecast.scatter`). `rough`: roughness of the
    curve."""
    if points.scatter is not None:
        return points.scatter
    _, group = np.unique(points.x, axis=1, return_inverse=True)
    count, log_y = np.bincount(group.ravel()), np.log(points.y)
    about = log_y - (np.bincount(group.ravel(), log_y) / count)[group.ravel()]
    squares, freedom = float((about**2).sum()), len(log_y) - len(count)
    return float(np.sqrt((squares + PRIOR_ORIGINS * rough**2) / (freedom + PRIOR_ORIGINS)))


def _group_means(points: Points) -> tuple[np.ndarray, np.ndarray]:
    """Return the distinct x, (inputs, groups), in order of place, and the mean log y of each, (groups,)."""
    distinct, group = np.unique(points.x, axis=1, return_inverse=True)
    means = np.bincount(group.ravel(), np.log(points.y)) / np.bincount(group.ravel())
    order = np.argsort(place(distinct), kind="stable")
    return distinct[:, order], means[order]


def _condensed(points: Points) -> Points:
    """Return the points; if they are many (more than `MAX_BINS`) and have one input, means over narrow bins of
    log x."""
    if points.x.shape[0] > 1 or len(points) <= MAX_BINS:
        return points
    log_x = np.log(points.x[0])
    edges = np.linspace(log_x.min(), log_x.max(), MAX_BINS + 1)
    _, of = np.unique(np.clip(np.searchsorted(edges, log_x, side="right"), 1, MAX_BINS), return_inverse=True)
    count = np.bincount(of)
    x, y = (np.exp(np.bincount(of, values) / count) for values in (log_x, np.log(points.y)))
    return Points(x=x[None], y=y, cluster=np.arange(len(x)))
