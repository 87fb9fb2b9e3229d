"""Extrapolation intervals: what such predictions missed on other curves, and on this one before.

Two sources say how far off a prediction may be, each as an error of log y per unit of log distance beyond the data.

- Other curves (`ExtrapolationPrior.usual_rate`): one that falls steeply, is rough, or has few places has missed by
  more. A curve that nobody could test before gets an interval from this alone.
- This curve: the procedure (forms, loss, weights) is refitted to the points up to earlier origins, and its errors
  beyond each are seen: rolling-origin evaluation (Tashman 2000). An origin leaves one rate, the rms error per unit of
  log distance at about the requested distance, and counts half for every octave that it lies earlier.

Their mean square, in which other curves weigh as much as `PRIOR_ORIGINS` origins, is the scale of a Student's t with
`FREEDOM` degrees of freedom: a moderated variance (Smyth 2004). Where origins missed to one side, the
interval leans there. Resampling inside one analysis cannot give this: errors beyond the data are bias of the form, not
scatter of the points.

Where several forms are given, the law is the median of their log predictions, every form with the same weight. None is
chosen by the record, which would then flatter it (the winner's curse). The constants were set on one half of the curves
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
"""Forms of one input that bend. bnsl1 in place of power-floor missed 1.1 to 1.2 times as much."""
MIN_PLACES = 4  # distinct x that an interval beyond them takes, and an origin
PRIOR_ORIGINS = 2.0  # the weight of other curves, in origins of this one
PRIOR_SLOPE, PRIOR_ROUGHNESS = 0.2, 0.8  # rates of other curves, per unit of their slope and of their roughness,
PRIOR_PLACES = 8  # at this many places; in proportion to 1 / (places - 2)
FREEDOM = 3  # of misses in units of their scale
LEAN = 0.25  # log of the factor on the half-width to the side where all origins missed
MAX_ORIGINS = 14
ORIGINS_PER_OCTAVE = 2
MIN_DISTANCE = 0.3  # of log x, about half an octave: errors nearer by are scatter, not extrapolation
WINDOW = (0.7, 1.3)  # of the requested distance: held-out points that are judged
SAME_PLACE = 1e-9  # of log x
POINTS_HALF_LIFE = 2.0  # octaves: the earliest points say least about what comes next (Choshen et al. 2024)
ORIGINS_HALF_LIFE = 1.0  # octaves
IMPROVEMENT = 0.9  # rate of the next error / mean rate of the record, whose origins saw fewer points
STARTS = 60
REACH = 10.0  # times the data, up to which laws are asked what a value takes
GRID = 241  # places at which they are asked
MAX_BINS = 200  # of log x, that a longer table is averaged over


def misses_quantile(level: float) -> float:
    """Two-sided quantile of misses in units of their scale."""
    return float(special.stdtrit(FREEDOM, 0.5 + level / 2))


def place(x: np.ndarray) -> np.ndarray:
    """The places of points on the way to larger scale, (n,): x, or the product of the first two inputs."""
    return np.prod(np.atleast_2d(x)[:2], axis=0)


@dataclass(frozen=True, kw_only=True, eq=False)
class ExtrapolationPrior:
    """Properties of points by which other curves like them say how far off extrapolations are.

    Attributes:
        places: number of distinct x.
        slope: |d log y / d log x| of each form one octave beyond them.
        roughness: rms miss of log y by the line between its neighbours, in standard deviations of one place.
    """

    places: int
    slope: Mapping[str, float]
    roughness: float

    @property
    def usual_rate(self) -> float:
        """Rms error of log y per unit of log distance, of other curves like this."""
        slope = float(np.median(list(self.slope.values())))
        rate = float(np.hypot(PRIOR_SLOPE * slope, PRIOR_ROUGHNESS * self.roughness))
        return rate * (PRIOR_PLACES - 2) / max(1, self.places - 2)

    def of(self, names: set[str]) -> ExtrapolationPrior:
        return replace(self, slope={name: slope for name, slope in self.slope.items() if name in names})


@dataclass(frozen=True, kw_only=True, eq=False)
class ForecastOrigin:
    """The error of a procedure that saw the points up to `end`.

    Attributes:
        end: largest place fitted.
        points: how many were.
        octaves: how far it lies before the end of the data.
        prior: what these points showed.
        distance: log distance of every group mean beyond it.
        error: log observed - log predicted, of each form, there.
    """

    end: float
    points: int
    octaves: float
    prior: ExtrapolationPrior
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

    def rates(self, distance: float) -> tuple[np.ndarray, float]:
        """Errors per unit of log distance at about `distance`, or at the farthest there is; and where that was."""
        top = min(distance, float(self.distance.max()))
        near = (self.distance >= WINDOW[0] * top) & (self.distance <= WINDOW[1] * top)
        if not near.any():
            near = self.distance == self.distance[np.abs(self.distance - top).argmin()]
        return self.errors[near] / np.maximum(self.distance[near], MIN_DISTANCE), top


@dataclass(frozen=True, kw_only=True)
class PastError:
    """How far off a procedure was `factor` times beyond each of `origins`: `median_error`, relative."""

    origins: int
    factor: float
    median_error: float


@dataclass(frozen=True, kw_only=True, eq=False)
class Bands:
    """Intervals of y at several x, (n, 2) each: within <= total <= one_run, as sets. NaN where nothing supports one.

    Beyond the data, past misses alone make `total`: they hold the noise of the fit, and resampling a few points gives
    intervals that are now too narrow, now absurdly wide.

    Attributes:
        y: predictions, (n,).
        within: by resampling, inside the data: noise and, where several forms were resampled, their difference.
        total: that and the spread of forms inside; past misses beyond.
        one_run: what one more run would measure, total and the scatter of points.
        reach: how many times beyond the largest point (below 1: below the smallest), 1 inside.
    """

    y: np.ndarray
    within: np.ndarray
    total: np.ndarray
    one_run: np.ndarray
    reach: np.ndarray

    def with_those_of(self, other: Bands, *, top: float) -> Bands:
        """The least intervals that contain these and the others', up to `top`; y is that of these."""
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
    """A prediction beyond the data with the record of the procedure that makes it.

    Attributes:
        fits: to all points, one per form.
        origins: latest first.
        prior: what all points show.
        scatter: standard deviation of one run's log y: between runs at one place, and roughness, which weighs as much
            as `PRIOR_ORIGINS` further runs.
        withheld: why it says nothing beyond the points, whatever they show; None where it does.
    """

    fits: tuple[FormFit, ...]
    origins: tuple[ForecastOrigin, ...]
    prior: ExtrapolationPrior
    scatter: float
    withheld: str | None = None

    @property
    def answers(self) -> bool:
        """Whether there is an interval beyond the points."""
        return self.withheld is None and self.prior.places >= MIN_PLACES

    @cached_property
    def grid(self) -> np.ndarray:
        """x of the only input, where it is asked what a value takes: the data, and `REACH` times them if it answers."""
        first, last = self.fits[0].range
        return np.geomspace(first, last * (REACH if self.answers else 1.0), GRID)

    def of(self, forms: Sequence[Form]) -> Forecast:
        """The forecast by some of the forms."""
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
        """The record as it was at the origin of that number: from earlier origins, on points that were seen by then."""
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
        """Half of the interval of log y at a log distance beyond the data, the geometric mean of its `sides`; 0 inside,
        NaN below the data and where there are too few places."""
        if distance == 0:
            return 0.0
        if distance < 0 or not self.answers:
            return np.nan
        asked = max(distance, MIN_DISTANCE)
        return misses_quantile(level) * self.expected_rate(asked) * asked

    def sides(self, distance: float, *, level: float = LAW_LEVEL) -> np.ndarray:
        """How far the interval of log y reaches below and above the prediction, (2,)."""
        half = self.half_width(distance, level=level)
        return half * np.exp(self.lean(max(distance, MIN_DISTANCE)) * np.array([-1, 1])) if half else np.zeros(2)

    def expected_rate(self, distance: float) -> float:
        """Rms error per unit of log distance that other curves and the record, at about `distance`, let one expect."""
        known = self._weights.sum()
        record = IMPROVEMENT * self.rate(distance) if len(self.origins) else 0.0
        squares = PRIOR_ORIGINS * self.prior.usual_rate**2 + known * record**2
        return float(np.sqrt(squares / (PRIOR_ORIGINS + known)))

    def lean(self, distance: float) -> float:
        """How far the interval leans to the side where origins missed: from -LEAN, below, to LEAN, above."""
        expected = self.expected_rate(distance)
        if not len(self.origins) or not expected:
            return 0.0
        bias = float(np.average([o.rates(distance)[0].mean() for o in self.origins], weights=self._weights))
        return LEAN * float(np.clip(bias / expected, -1, 1))

    def rate(self, distance: float) -> float:
        """Mean rms error per unit of log distance at about `distance`, over origins; recent ones count more."""
        rates = [np.sqrt((origin.rates(distance)[0] ** 2).mean()) for origin in self.origins]
        return float(np.average(rates, weights=self._weights))

    @property
    def _weights(self) -> np.ndarray:
        return 0.5 ** (np.array([origin.octaves for origin in self.origins]) / ORIGINS_HALF_LIFE)

    def past_error(self, distance: float) -> PastError:
        """The record at about a log distance, or at the farthest there is."""
        past = [origin.rates(max(distance, MIN_DISTANCE)) for origin in self.origins]
        missed = [np.sqrt((rates**2).mean()) * top for rates, top in past]
        return PastError(
            origins=len(past),
            factor=float(np.exp(np.median([top for _, top in past]))),
            median_error=float(np.expm1(np.median(missed))),
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
        beyond = np.array([self.sides(float(d), level=level) for d in distance])  # NaN where nothing supports one
        every = np.stack([made.log_predict(x) for made in self.fits])
        spread = np.stack([centre - every.min(axis=0), every.max(axis=0) - centre], axis=1)
        inside = (distance == 0)[:, None]
        total = np.where(inside, np.maximum(spread, noise), beyond)
        noise = np.where(inside, noise, np.nan)  # past misses hold it, and far more
        one_run = np.hypot(total, misses_quantile(level) * self.scatter)
        within, total, one_run = (np.exp(centre[:, None] + half * [-1, 1]) for half in (noise, total, one_run))
        return Bands(y=np.exp(centre), within=within, total=total, one_run=one_run, reach=np.exp(distance))

    def departure(self) -> float | None:
        """log of the last mean / what the points up to the latest origin gave for it, where that lies outside the
        interval of one run that they gave; None where it does not."""
        if not self.origins:
            return None
        before, error = self.before(0), float(self.origins[0].errors[-1])
        sides = before.sides(float(self.origins[0].distance[-1]))
        below, above = np.hypot(sides, misses_quantile(LAW_LEVEL) * before.prior.roughness)
        return error if error > above or error < -below else None


@dataclass(frozen=True, kw_only=True)
class Inverse:
    """x at which one more run has a value: where the law falls to it, and where the ends of the interval of one run do.
    0 where that is so at the smallest x that was looked at, infinite where it is not so at any."""

    x: float
    low: float
    high: float


def reached(x_N: np.ndarray, bands: Bands, wanted: float) -> Inverse:
    """The x of a value: the law's line and the interval of one run at x, inverted as far as there is one. x ascends.

    The interval of the law would hold too seldom: the value is one that a run is to have, and a run scatters about the
    law (results/reference/coverage/extrapolation.md).
    """
    known = np.isfinite(bands.one_run).all(axis=1)
    curves = np.log(np.stack([bands.y, *bands.one_run.T])[:, known])
    x, low, high = np.exp(invert(np.log(x_N[known]), curves, np.log([wanted]))[:, 0]).tolist()
    return Inverse(x=x, low=low, high=high)


def invert(log_x_N: np.ndarray, curves_CN: np.ndarray, wanted_W: np.ndarray) -> np.ndarray:
    """log x where falling curves first reach `wanted`, (C, W), by linear interpolation: -inf where they begin below,
    inf where they do not reach it, NaN for a curve that is no number."""
    log_x_CW = np.full((len(curves_CN), len(wanted_W)), np.nan)
    for row, curve in enumerate(curves_CN):
        falling = np.minimum.accumulate(curve)  # once reached, it stays so
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
    """Runs of one input that lie far off the others, (n,): alone at an inner place (`interpolation.far_off`), or among
    three and more at one."""
    distinct, group = np.unique(np.log(points.x[0]), return_inverse=True)
    log_y, count = np.log(points.y), np.bincount(group)
    middle = log_y[np.argsort(group)][np.cumsum(count) - 1]  # of a place with one run, which most have in long tables
    several = np.flatnonzero(count > 1)
    if len(several):
        of = np.split(np.argsort(group, kind="stable"), np.cumsum(count)[:-1])
        middle[several] = [np.median(log_y[of[place]]) for place in several]
    far = far_off(distinct, middle)
    kept = np.delete(np.arange(len(distinct)), far)
    usual = roughness(distinct[kept], middle[kept])
    return np.isin(group, far) | ((count[group] > 2) & (np.abs(log_y - middle[group]) > FAR * usual) & (usual > 0))


def _prior_of(fits: Sequence[FormFit]) -> ExtrapolationPrior:
    """The prior from the points of some fits."""
    points = fits[0].points
    means_x, means = _group_means(points)
    if len(points.x) == 1:
        rough = roughness(np.log(means_x[0]), means)
    else:  # neighbours in place are none: the fit's own residuals instead
        freedom = max(1, len(points) - int(np.median([made.form.size for made in fits])))
        rough = float(np.sqrt((np.median([made.residuals for made in fits], axis=0) ** 2).sum() / freedom))
    end = np.stack([points.x.max(axis=1), points.x.max(axis=1) * 2 ** (1 / len(points.x))], axis=1)
    slope = {made.form.name: float(abs(np.diff(made.log_predict(end))[0]) / np.log(2)) for made in fits}
    return ExtrapolationPrior(places=len(np.unique(place(points.x))), slope=slope, roughness=rough)


def _scatter(points: Points, rough: float) -> float:
    """Standard deviation of one run's log y."""
    if points.scatter is not None:
        return points.scatter
    _, group = np.unique(points.x, axis=1, return_inverse=True)
    count, log_y = np.bincount(group.ravel()), np.log(points.y)
    about = log_y - (np.bincount(group.ravel(), log_y) / count)[group.ravel()]
    squares, freedom = float((about**2).sum()), len(log_y) - len(count)
    return float(np.sqrt((squares + PRIOR_ORIGINS * rough**2) / (freedom + PRIOR_ORIGINS)))


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
