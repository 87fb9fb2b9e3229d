"""Fits a scaling law to each family of a study: the error on the family's frontier, over compute or over distinct
images.

The frontier consists of a family's best points: no point with at most their compute is better by much. The best of
several noisy runs looks better than it is, so every best point is corrected for that before the fit (`frontier_bias`).
No law is fitted to points that do not belong together: some in the middle of a schedule and others cooled down, points
on several data sets, or with compute in different units.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from bench.analysis.budgets import budgets
from bench.analysis.comparisons import size_curves
from bench.analysis.evidence import HEADLINE, Evidence, Point, family_rank, kept
from bench.analysis.finding import TREND_POINTS, Axis
from bench.analysis.findings import ValidityCheck
from bench.core.errors import UserError
from bench.laws import averaging, bootstrap, fit, model_selection
from bench.laws.averaging import Averaged
from bench.laws.extrapolation import Bands, Forecast, forecast
from bench.laws.forms import M3, POWER, POWER_FLOOR, ZHAI, Form
from bench.laws.lack_of_fit import GroupMeans, LackOfFit, lack_of_fit
from bench.stats.intervals import seed_error
from bench.stats.pareto import FAR_OFF, frontier_bias, pareto
from bench.study.cell import Recipe

LAW_TOO_FEW_POINTS = "no law: too few points"
"""This and the next four are kinds of a `ValidityCheck` that says why a family (in `names`) has no law. Here, `count`
is the number of points near the frontier, and `limit` the number needed. Too few points and a failed fit are not
warnings."""
LAW_FIT_FAILED = "no law: fit failed"
LAW_NOT_COOLED_DOWN = "no law: points not cooled down"
"""`count`: points that were not cooled down, and so look worse, beside others that were."""
LAW_SEVERAL_DATA_SETS = "no law: several data sets"
"""`groups`: the data sets that the points were pre-trained on."""
LAW_UNITS = "no law: units of compute"
"""`groups`: a model; `high`: its compute divided by 6 FLOPs per multiply-add and image."""
FORMS: tuple[Form, ...] = (POWER, POWER_FLOOR)
"""The form that is shown is one of these, the same for all families."""
POSSIBLE: tuple[Form, ...] = (*FORMS, ZHAI, M3)
"""Intervals are averaged over these forms by their weights. m4 and bnsl1 have more parameters than a family has
budgets."""
LOSSES = ("squares", "huber")
"""Losses over which intervals are averaged. The law that is shown uses the first: for few points without outliers,
least squares are most efficient."""
DRAWS, STARTS = 500, 12  # resamples of a law; starting points of a fit
SEED_STRIDE = 100_000  # difference of the random seeds of two families
NEARNESS = 0.1
"""Points whose error is within this fraction of the frontier's are fitted too: one would use such designs as well, and
the more points count, the smaller the selection bias."""
MAX_POINTS = 30  # only this many of the nearest points are fitted: more take time and add little information
UNITS_APART = 1.4  # counts of one convention agree to a few per cent; MACs, or forward alone, are off by 2 or 3


@dataclass(frozen=True, kw_only=True, eq=False)
class Law:
    """The fitted law of one family: error (1 - accuracy) over `axis`.

    Attributes:
        within: bootstrap refits of the form that is shown, which is the same for all families.
        averaged: bootstrap refits of all forms and losses, as many of each as its weight says; crossings and exponents
            are computed from these.
        forecast: the law, with the errors that it made when it was fitted to the smaller x only and predicted the
            larger ones; these errors give the intervals beyond the data.
        ranked: forms, sorted by their extrapolation error over all families together.
        points: the points on or near the frontier, to which the law is fitted.
        tried: number of all points of the family.
        bias: mean correction for picking the best points, in accuracy.
        noise: standard error of a point's accuracy over seeds, averaged over `points`.
        best: (x, corrected error) of the points on the frontier.
        group_means: corrected mean errors over seeds, one for each of `points`.
        most: largest x of the family, on the frontier or not.
        best_models: the model of each point in `best`; () for published networks, each of which is a different model.
    """

    family: str
    axis: Axis
    measure: str
    within: bootstrap.Resampled
    averaged: Averaged
    forecast: Forecast
    ranked: tuple[model_selection.Ranked, ...]
    points: tuple[Point, ...]
    tried: int
    bias: float
    noise: float
    best: tuple[tuple[float, float], ...]
    group_means: GroupMeans
    most: float
    best_models: tuple[str, ...] = ()

    @cached_property
    def lack_of_fit(self) -> LackOfFit | None:
        """The lack-of-fit test of the law against the means over seeds at each x (`group_means`); None if the test
        cannot be made."""
        made = self.within.fit
        return lack_of_fit(self.group_means, made.predict(self.group_means.x), parameters=made.form.size)

    @property
    def models(self) -> tuple[str, ...]:
        """Names of the models whose points are on the frontier, in order of x (compute or images)."""
        return tuple(dict.fromkeys(self.best_models))

    @property
    def is_smooth(self) -> bool:
        """Whether one smooth form can describe the frontier: all its points are of a single model, and the lack-of-fit
        test does not fail. The coverage of intervals of crossings and exponents was simulated for such laws only."""
        return len(self.models) < 2 and not (self.lack_of_fit and self.lack_of_fit.fails)

    @property
    def range(self) -> tuple[float, float]:
        return self.within.fit.range

    @property
    def runs(self) -> int:
        return len(self.within.fit.points)

    @property
    def frontier(self) -> tuple[np.ndarray, np.ndarray]:
        """(x, error) of the points on the frontier, as two arrays; errors are corrected for having been picked as the
        best."""
        x, y = np.array(self.best).T
        return x, y

    def errors(self, x: np.ndarray) -> np.ndarray:
        """Return the error at every x by each bootstrap refit of all forms and losses, (refits, len(x))."""
        return self.averaged.predictions(x)

    def bands(self, x: np.ndarray) -> Bands:
        """Return the law's prediction and intervals at every x. Inside the data, intervals contain both the interval
        over all forms and that of the form that is shown; beyond the data, they come from extrapolation errors. Below
        the smallest x of the data they are NaN."""
        over_forms, own = (self.forecast.bands(refits, x[None]) for refits in (self.averaged, self.within))
        return over_forms.with_those_of(own, top=1.0)

    @cached_property
    def on_grid(self) -> Bands:
        """The law with its intervals at the values of x in `forecast.grid`, among which the x of a given error is
        searched."""
        return self.bands(self.forecast.grid)


def laws(evidence: Evidence, *, axis: Axis = Axis.COMPUTE, measure: str = HEADLINE) -> dict[str, Law]:
    """Return family -> its fitted law, for every family whose points allow one.

    Args:
        axis: x of the laws, compute or distinct images.
        measure: name of the score.
    """
    made = {name: _law(evidence, name, axis, measure) for name in _points(evidence, axis)}
    return {name: law for name, law in made.items() if isinstance(law, Law)}


def why_not(evidence: Evidence, *, axis: Axis = Axis.COMPUTE, measure: str = HEADLINE) -> dict[str, ValidityCheck]:
    """Return family -> the reason why it has no law, for every family without one.

    Args:
        axis: x of the laws, compute or distinct images.
        measure: name of the score.
    """
    made = {name: _law(evidence, name, axis, measure) for name in _points(evidence, axis)}
    return {name: check for name, check in made.items() if isinstance(check, ValidityCheck)}


@kept
def _points(evidence: Evidence, axis: Axis) -> Mapping[str, list[Point]]:
    by_family: dict[str, list[Point]] = {}
    if axis == Axis.COMPUTE:
        for series in evidence.on_axis("compute"):
            by_family.setdefault(series.family, []).extend(p for p in series.points if p.train_flops > 0)
    else:
        for curve in size_curves(evidence):
            by_family.setdefault(curve.family, []).extend(curve.points)
    return dict(sorted(by_family.items(), key=lambda item: family_rank(item[0])))


@kept
def _law(evidence: Evidence, family: str, axis: Axis, measure: str) -> Law | ValidityCheck:
    try:
        return _fit(evidence, family, axis, measure)
    except UserError:
        return ValidityCheck(kind=LAW_FIT_FAILED, names=(family,))


@dataclass(frozen=True, kw_only=True, eq=False)
class _Prepared:
    """A family's points, and those among them that a law is fitted to.

    Attributes:
        known: the family's points that have a score. `x`, `errors` and `noise` are in this order.
        front: indices in `known` of the points on or near the frontier.
        strict: indices in `known` of the points on the frontier.
        x: compute or number of images of each point.
        errors: error (1 - accuracy) of each point.
        noise: standard error of each error.
        biases: for each point of `front`, how much too low its error looks because it was picked as the best, as a
            negative number; 0 off the frontier.
        data: single runs of the points of `front`, with corrected errors.
    """

    known: list[Point]
    front: list[int]
    strict: list[int]
    x: np.ndarray
    errors: np.ndarray
    noise: np.ndarray
    biases: np.ndarray
    data: fit.Points


@kept
def _prepared(evidence: Evidence, family: str, axis: Axis, measure: str) -> _Prepared | ValidityCheck:
    points = _points(evidence, axis)[family]
    known = [p for p in points if (e := evidence.estimate(p, measure)) is not None and 0 < e.value < 1]
    if mixture := mixed(evidence, family, known):
        return mixture
    x = np.array([p.train_flops if axis == Axis.COMPUTE else float(p.unique_images) for p in known])
    errors = np.array([1 - evidence.estimate(p, measure).value for p in known])  # type: ignore[union-attr]
    budget = budgets(x) if axis == Axis.COMPUTE else x
    strict = pareto(budget.tolist(), errors.tolist())
    best = np.minimum.accumulate(errors[strict])[np.searchsorted(budget[strict], budget, side="right") - 1]
    nearest = np.argsort(errors / best, kind="stable")[:MAX_POINTS]
    # if there is one point for each number of images, nothing is selected: all are fitted, also where errors rise again
    apart = axis == Axis.IMAGES and len(np.unique(x)) == len(x)
    front = sorted((int(i) for i in nearest if apart or errors[i] <= (1 + NEARNESS) * best[i]), key=lambda i: (x[i], i))
    if len(np.unique(x[front])) < TREND_POINTS:
        return ValidityCheck(kind=LAW_TOO_FEW_POINTS, names=(family,), count=len(front), limit=TREND_POINTS)
    noise = _noise(evidence, measure, known, x[front], errors[front])
    biases = np.where(np.isin(front, strict), _biases(budget, errors, noise, front), 0.0)
    data = _runs(evidence, measure, [known[i] for i in front], x[front], biases)
    return _Prepared(known=known, front=front, strict=strict, x=x, errors=errors, noise=noise, biases=biases, data=data)


@kept
def _ranked(evidence: Evidence, axis: Axis, measure: str) -> tuple[model_selection.Ranked, ...]:
    """Rank the functional forms of laws by their extrapolation error over all families together: all families get the
    same form, because exponents of different forms could not be compared."""
    prepared = [_prepared(evidence, family, axis, measure) for family in _points(evidence, axis)]
    known = (p.data for p in prepared if isinstance(p, _Prepared))
    return tuple(model_selection.rank([forecast(data, FORMS, loss=LOSSES[0], half_life=None) for data in known]))


@kept
def _fits(evidence: Evidence, family: str, axis: Axis, measure: str) -> tuple[fit.FormFit, ...]:
    """Return a fit of every form and loss to a family's points; () if no law can be fitted."""
    prepared = _prepared(evidence, family, axis, measure)
    if isinstance(prepared, ValidityCheck):
        return ()
    return tuple(made for loss in LOSSES for made in averaging.fits_of(prepared.data, POSSIBLE, loss=loss))


@kept
def _shown(evidence: Evidence, axis: Axis, measure: str) -> Form:
    """Return the functional form of the laws that are shown to users, the same for all families."""
    fits = [_fits(evidence, family, axis, measure) for family in _points(evidence, axis)]
    weights = [averaging.form_weights(each) for each in fits if each]
    return model_selection.select(_ranked(evidence, axis, measure), weights)


def _fit(evidence: Evidence, family: str, axis: Axis, measure: str) -> Law | ValidityCheck:
    prepared = _prepared(evidence, family, axis, measure)
    if isinstance(prepared, ValidityCheck):
        return prepared
    known, front, strict, x, errors = prepared.known, prepared.front, prepared.strict, prepared.x, prepared.errors
    noise, biases, data = prepared.noise, prepared.biases, prepared.data
    chosen = _shown(evidence, axis, measure)
    seed = SEED_STRIDE * list(_points(evidence, axis)).index(family)  # independent noise: families are compared
    law = fit.fit(data, chosen, loss=LOSSES[0], max_starts=STARTS)
    main = bootstrap.resample(law, draws=DRAWS, restarts=0, seed=seed)
    fits = _fits(evidence, family, axis, measure)
    averaged = averaging.average(fits, shown=law, draws=2 * DRAWS, restarts=0, seed=seed + 1)
    front_noise = noise[front]
    freedom = _freedom(evidence, measure, [known[i] for i in front])
    return Law(
        group_means=GroupMeans(x=x[front], error=errors[front] - biases, noise=front_noise, freedom=freedom),
        most=float(x.max()),
        family=family,
        axis=axis,
        measure=measure,
        within=main,
        averaged=averaged,
        ranked=_ranked(evidence, axis, measure),
        forecast=replace(forecast(data, [chosen], loss=LOSSES[0], half_life=None), fits=(law,)),
        points=tuple(known[i] for i in front),
        tried=len(known),
        bias=float(-biases.mean()),
        noise=float(front_noise.mean()),
        best_models=() if evidence.published else tuple(known[i].model for i in front if i in strict),
        best=tuple((float(x[i]), float(errors[i] - b)) for i, b in zip(front, biases, strict=True) if i in strict),
    )


def _noise(evidence: Evidence, measure: str, known: Sequence[Point], x: np.ndarray, errors: np.ndarray) -> np.ndarray:
    """Return the standard error of every point's score: over training seeds or, if that is unknown or 0 for some point,
    the scatter about a law fitted to `x` and `errors`.

    Args:
        measure: name of the score.
        known: the points.
        x, errors: x and errors of the points on or near the frontier.
    """
    noise = np.array([error for error, _ in _seed_errors(evidence, measure, known)])
    if np.isfinite(noise).all() and (noise > 0).all():
        return noise
    data = fit.Points(x=x[None], y=errors, cluster=np.arange(len(x)))
    forms = [form for form in FORMS if form.size < len(x)]
    scatter = min(fit.fit(data, form, loss="squares", max_starts=STARTS, ftol=fit.REFIT_FTOL).rms for form in forms)
    return np.full(len(known), scatter * float(errors.mean()))


def _seed_errors(evidence: Evidence, measure: str, points: Sequence[Point]) -> list[tuple[float, float]]:
    """Return, for every point, the standard error over training seeds of the score `measure`, and its degrees of
    freedom; (NaN, 0) if unknown."""
    pooled = evidence.pool(measure)
    sampled = [evidence.samples(p, measure) for p in points]
    return [(np.nan, 0.0) if s is None or pooled is None else seed_error(s, pooled) for s in sampled]


def _freedom(evidence: Evidence, measure: str, points: Sequence[Point]) -> float:
    """Return the degrees of freedom of the standard errors of the points' scores, as a harmonic mean over points; 0 if
    the standard error of some point is 0 or unknown."""
    errors = _seed_errors(evidence, measure, points)
    return len(errors) / sum(1 / df for _, df in errors) if all(error > 0 for error, _ in errors) else 0.0


def _biases(x: np.ndarray, errors: np.ndarray, noise: np.ndarray, front: Sequence[int]) -> np.ndarray:
    """Return the selection bias of every point of `front`: how much too low its error looks because it was picked as
    the lowest so far, as a negative number.

    Args:
        x, errors, noise: x, error, and standard error of the error of all points.
        front: indices of the points.
    """
    members = []
    for i in front:
        rivals = np.flatnonzero(x <= x[i])
        members.append(rivals[errors[rivals] <= errors[i] + FAR_OFF * noise[rivals]])
    return frontier_bias(errors, noise, members)


def _runs(evidence: Evidence, measure: str, points: Sequence[Point], x: np.ndarray, biases: np.ndarray) -> fit.Points:
    """Return the corrected error of every single run (seed) of some points. Runs of one variant and seed form a
    cluster, because they branch from one trunk.

    Args:
        measure: name of the score.
        x, biases: x of each point, and its selection bias, which is subtracted from its errors.
    """
    runs: list[tuple[float, float, str]] = []
    for point, at, bias in zip(points, x, biases, strict=True):
        samples = evidence.samples(point, measure)
        assert samples is not None
        for row, value in enumerate(samples.values_SD.mean(axis=1)):
            seed = samples.seeds[row] if samples.seeds else 0
            own = f"/{point.images_seen}" if evidence.published else ""  # published networks share no trunk
            runs.append((float(at), float(np.clip(1 - value - bias, 1e-6, 1.0)), f"{point.variant}/{seed}{own}"))
    trunks = [trunk for _, _, trunk in runs]
    return fit.Points(
        x=np.array([[a for a, _, _ in runs]]),
        y=np.array([b for _, b, _ in runs]),
        cluster=np.unique(trunks, return_inverse=True)[1],
    )


# -- points that do not belong in one law ------------------------------------------------------------------------------


def mixed(evidence: Evidence, family: str, points: Iterable[Point]) -> ValidityCheck | None:
    """Return the reason why some points of a family do not belong in one law; None if they do."""
    listed, names = list(points), (family,)
    cooldowns = [used.cooldown for point in listed if (used := recipe(evidence, point)) is not None]
    if any(cooldowns) and (without := sum(value == 0 for value in cooldowns)):
        return ValidityCheck(kind=LAW_NOT_COOLED_DOWN, names=names, count=without)
    data = sorted({p.data for p in listed if p.trained})
    if len(data) > 1:
        return ValidityCheck(kind=LAW_SEVERAL_DATA_SETS, names=names, groups=(("", tuple(data)),))
    wrong = units_apart(listed)
    if wrong:
        model, ratio = wrong[0]
        return ValidityCheck(kind=LAW_UNITS, names=names, groups=(("", (model,)),), high=ratio)
    return None


def units_apart(points: Iterable[Point]) -> list[tuple[str, float]]:
    """Return (model, ratio) of the models whose training compute contradicts their multiply-adds. `ratio`: compute
    divided by 6 FLOPs per multiply-add and image."""
    ratios = {
        (p.model, round(p.train_flops / (6 * p.forward_macs * p.images_seen), 2))
        for p in points
        if p.trained and p.forward_macs > 0
    }
    return [(model, ratio) for model, ratio in sorted(ratios) if not 1 / UNITS_APART < ratio < UNITS_APART]


def recipe(evidence: Evidence, point: Point) -> Recipe | None:
    """Return the recipe that a point's model was trained with; None if it is unknown."""
    return _recipes(evidence).get(point.variant)


@kept
def _recipes(evidence: Evidence) -> Mapping[str, Recipe]:
    table = evidence.horizons.drop_duplicates("variant")
    return dict(zip(table["variant"], table["recipe"], strict=True))
