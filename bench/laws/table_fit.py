"""Fits scaling laws to a table of runs from any source: one per group, with predictions, backtests and crossings."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd

from bench.core.errors import UserError, unknown
from bench.core.formatting import compact, percent, plural, significant
from bench.laws import (
    REFITS,
    averaging,
    bootstrap,
    design,
    diagnostics,
    extrapolation,
    fit,
    forms,
    isoflop,
    next_runs,
    table_diagnostics,
)
from bench.laws import runs_table as reader
from bench.laws.averaging import Averaged
from bench.laws.crossing import crossing, difference
from bench.laws.extrapolation import Bands, Forecast
from bench.laws.forms import form_name
from bench.laws.roughness import FAR

JOINT_FORMS = ("chinchilla", "repeated")
ISOFLOP = "isoflop"
ONLY_GROUP = "all"  # name of the only group
MAX_GROUPS = 50
MAX_ROWS = 100  # A law of one input is fitted to at most this many rows; more rows are averaged first.
SEED_STRIDE = 100_000  # difference of the random seeds of two groups
ALIKE = 0.6  # least similarity to a misspelt option at which one is suggested: forms with like names may differ a lot
CHOICES = {
    "form": (*forms.FORMS, "auto", ISOFLOP),
    "loss": ("huber", "squares", "absolute"),
    "schedule": ("runs", "constant", "decay"),
}  # allowed values of the fields of `Request`
LEAST_DRAWS = 20
RULED_OUT = 0.01  # a warning appears if the weight of the shown form is below this
FACTORS = (2.0, 4.0, 8.0)  # a backtest lists errors at these multiples of an origin's x
NEAREST_AT, AS_NEAR = (0.25, 1.0, 2.0, 4.0), 2e-3
"""Multiples of the largest x at which forms are compared with the law, and the mean difference of log y that does not
matter."""
LEAST_FREEDOM = 2  # degrees of freedom of laws whose exponents are compared; with 1, 90 % intervals hold 84 %
CURVE_POINTS, CURVE_REACH = 61, 3.0
"""Number of points of a curve for a figure, inside and beyond the data, and how many times beyond the largest run it
goes at least."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """A request for a fit, as given on the command line.

    Attributes:
        x, y: names of columns.
        form: a name of `forms.FORMS`, "auto" or "isoflop".
        group: column of the groups, which get one law each.
        accuracy: whether y is an accuracy; None: decided by its name.
        cluster: column that says which trunk (training run) a row comes from.
        budget: column of compute budgets, for "isoflop".
        loss, delta: see `fit.fit`.
        at: x to predict at, (inputs, n).
        reach: values of y (or accuracies) whose x is asked.
        schedule: what the rows are: "runs" (independent runs), or evaluations of one run whose learning rate is
            "constant" or in "decay"; None: this is guessed from their trunk and spacing.
        published: parameters of a published law by name, to be judged.
        draws: number of resamples.
        backtest: whether the answer holds the errors from earlier origins.
        curves: whether the answer holds every group's points and its curve with bands, for a figure.
        design: what the next runs may cost together, in the unit of `cost` or of compute; None: no runs are proposed.
        narrow: name of the answer whose interval these runs are to narrow (`bench.laws.next_runs`).
        cost: column of costs; None: see `runs_table.run_price`.
        unit_prices: "FLOP" or "hours" -> (price of one, source of the price).
    """

    x: tuple[str, ...]
    y: str
    form: str = "auto"
    group: str | None = None
    accuracy: bool | None = None
    cluster: str | None = None
    budget: str | None = None
    loss: str = "huber"
    delta: float | None = None
    at: np.ndarray | None = None
    reach: tuple[float, ...] = ()
    schedule: str | None = None
    published: Mapping[str, float] | None = None
    draws: int = REFITS
    backtest: bool = False
    curves: bool = False
    design: float | None = None
    narrow: str | None = None
    cost: str | None = None
    unit_prices: Mapping[str, tuple[float, str]] | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class Group:
    """One group of a table, with its fits.

    Attributes:
        points: the points that are fitted.
        rows: the rows whose means the points are; the points themselves if no means were formed.
        notes: lines for the user on how the rows were interpreted.
        law: the law that predicts, for the form "auto"; otherwise None.
        fits: a fit of every form of one input to all points; () for a law of several inputs.
        withheld: the reason why the law gives no intervals beyond the points; None if it does.
    """

    points: fit.Points
    rows: fit.Points
    notes: list[str]
    law: Forecast | None
    fits: tuple[fit.FormFit, ...]
    withheld: str | None

    @property
    def weights(self) -> dict[str, float]:
        """Akaike weight of every form that the points allow, by name, the largest first."""
        return averaging.form_weights(self.fits) if self.fits else {}


def answer(table: pd.DataFrame, request: Request, *, held: pd.DataFrame | None = None) -> dict[str, Any]:
    """Fit laws to a table and return everything that was asked for, as JSON types.

    Args:
        held: held-out rows, which are not fitted but compared with the predictions at their x; None: there are none.

    Raises:
        UserError: unknown names, points that do not belong in one fit, or too few points in every group.
    """
    full = reader.full_accuracy(pd.concat([table, held]), request.y, accuracy=request.accuracy)
    _check_asked(request, full)
    table, notes = reader.with_inputs(table, request.x) if request.form in JOINT_FORMS else (table, [])
    places = (*filter(None, [request.budget]), *request.x)
    warnings = reader.guard(table, x=places, y=request.y, group=request.group, full=full)
    if request.form == ISOFLOP:
        if request.design is not None:
            raise UserError("isoFLOP profiles give no law to design by.", "Use --form chinchilla --x N,D.")
        return _isoflop(table, request, full)
    groups, failed = _groups(table, request, full)
    auto = request.form == "auto"
    form = _nearest(list(groups.values())) if auto else forms.FORMS[request.form]
    middle = _middle([group.points for group in groups.values()])
    asked = request.at is not None or request.curves
    seen = _seen(table, held, request, full) if asked and held is not None and len(held) else None
    made = {
        name: _fit(group, form, request, middle=middle, seed=number, held=seen and seen.of(name))
        for number, (name, group) in enumerate(groups.items())
    }
    if seen is not None and request.at is not None:
        for name, (card, _) in made.items():
            for at, prediction in zip(request.at.T, card["predictions"], strict=True):
                prediction["observed"] = observed(seen.of(name), at, prediction)
    shares = all(group.points.share for group in groups.values())
    result: dict[str, Any] = {
        "x": list(request.x),
        "y": f"1 − {request.y}" if shares else request.y,
        "share": shares,
        "fits": {name: card for name, (card, _) in made.items()},
        "refused": failed,
        "warnings": warnings,
        "notes": notes,
    }
    if len(made) > 1 and len(request.x) == 1:
        pairs = [(a, b, made[a][1], made[b][1]) for a, b in combinations(sorted(made), 2)]
        result["exponents"] = [
            {
                "first": a,
                "second": b,
                "x": middle,
                "straight": form.name == "power",
                **exponents_apart(one, other, middle),
            }
            for a, b, one, other in pairs
        ]
        result["crossings"] = [
            {"first": a, "second": b, **dataclasses.asdict(crossing(one, other, names=(a, b)))}
            for a, b, one, other in pairs
        ]
    if request.design is not None:
        told = {name: (groups[name], averaged) for name, (_, averaged) in made.items()}
        result["design"] = _design(table, request, told, form=None if auto else form, middle=middle)
    return result


def _design(
    table: pd.DataFrame,
    request: Request,
    told: Mapping[str, tuple[Group, Averaged]],
    *,
    form: forms.Form | None,
    middle: float,
) -> dict[str, Any]:
    """Return the next runs that narrow the interval of an answer most, as `bench.laws.next_runs.answer` does.

    Args:
        told: the fitted groups by name, each with its bootstrap refits.
        form: the form of all groups' laws; None under "auto".
        middle: x at which the slopes of laws are compared.
    """
    price = reader.run_price(table, request.x, cost=request.cost)
    prices = request.unit_prices or {}
    if prices and price.unit not in prices:
        raise UserError(
            f"A run costs {price.unit}, which has no price of an hour.", "Name a column of FLOPs or hours with --cost."
        )
    per_unit, said = prices.get(price.unit, (None, None))
    order = next_runs.Order(
        narrow=request.narrow,
        money=float(request.design or 0.0),
        price=price.of,
        unit=price.unit,
        per_unit=per_unit,
        per_unit_from=said,
    )
    named = [] if request.at is None else [f"y@{':'.join(f'{v:.12g}' for v in request.at[:, -1])}"]
    named += [f"x@{value:.12g}" for value in request.reach]
    groups, law = [], None
    for name, (group, averaged) in told.items():
        fits = group.fits if form is None else (averaged.fit,)
        weights = averaging.weigh(fits)
        groups.append(design.KnownGroup(name=name, fits=tuple(fits), weights=weights, refits=averaged))
        law = group.law
    if len(groups) == 1 and law is None:
        (only,) = groups
        made = only.fits[0]
        law = extrapolation.forecast(made.points, [made.form], loss=made.loss, delta=made.delta, half_life=None)
    return next_runs.answer(
        order, groups, form=form, middle=middle, law=law if len(groups) == 1 else None, asked=named[:1]
    )


def _check_asked(request: Request, full: float | None) -> None:
    """Raise UserError for an option that is not allowed, and for an x or y that no run can have. `full`: the value of a
    perfect accuracy (`runs_table.full_accuracy`); None: y is not an accuracy."""
    for name, allowed in CHOICES.items():
        if getattr(request, name) not in (None, *allowed):
            raise unknown(name, str(getattr(request, name)), allowed, cutoff=ALIKE)
    if request.draws < LEAST_DRAWS:
        raise UserError(f"{request.draws} resamples are too few for an interval.", f"At least {LEAST_DRAWS}.")
    for value in (*request.reach, *(() if request.at is None else request.at.ravel().tolist())):
        if not 0 < value < math.inf:
            raise UserError(f"No run has {value:g}: laws are of numbers above zero.", "Ask for another value.")
    if full and (beyond := [value for value in request.reach if _error_of(value) <= 0]):
        raise UserError(f"No law tells what an accuracy of {beyond[0]:g} takes.", "Name one below 100 %.")


def _error_of(accuracy: float) -> float:
    return 1 - accuracy / (100 if accuracy > 1 else 1)


def exponents_apart(first: Averaged, second: Averaged, x: float) -> dict[str, Any]:
    """Return the exponent (slope -d log y / d log x) of the first law at x minus that of the second, from independent
    refits of both: "value", "low" and "high"; all None if they cannot be compared, and then "reason" says why.

    In simulations (420 pairs of `tools/measure_crossings.py`, 5 to 12 points), 90 % intervals hold the difference in
    94 ± 1 % if the form is unknown, and in 91 ± 2 % of 255 pairs if it is known; quantiles of the differences between
    refits held it in 97 and 95 %.
    """
    straight = all(part.fit.form is forms.POWER for made in (first, second) for part in made.parts)
    reason = None
    if not straight and not all(made.fit.range[0] <= x <= made.fit.range[1] for made in (first, second)):
        reason = f"x = {compact(x)} is not among the runs of both"
    elif min(first.freedom, second.freedom) < LEAST_FREEDOM:
        reason = "one of them has too few runs"
    if reason:
        return {**dict.fromkeys(("value", "low", "high")), "reason": reason}
    slopes = [values[np.isfinite(values), None] for values in (first.slopes(x), second.slopes(x))]
    low, value, high = difference((slopes[0], slopes[1]), (first.freedom, second.freedom))[:, 0].tolist()
    return {"value": value, "low": low, "high": high, "reason": None}


def _groups(table: pd.DataFrame, request: Request, full: float | None) -> tuple[dict[str, Group], dict[str, str]]:
    """Return the groups that can be fitted, and for each other group the reason why it cannot, both by name."""
    parts = {ONLY_GROUP: table}
    if request.group:
        parts = reader.by_group(table, request.group)
    if len(parts) > MAX_GROUPS:
        raise UserError(
            f"{request.group!r} names {len(parts):,} groups; at most {MAX_GROUPS} are fitted at once.",
            "Choose some of them with --where.",
        )
    groups: dict[str, Group] = {}
    failed: dict[str, str] = {}
    for name, part in parts.items():
        try:
            groups[name] = _read(part, request, full)
        except UserError as error:
            if len(parts) == 1:
                raise
            failed[name] = str(error.what)
    if not groups:
        raise UserError(
            "No group can be fitted: " + " ".join(f"{k}: {v}" for k, v in failed.items()),
            "Add runs, or choose a form with fewer parameters (--form power has 2).",
        )
    return groups, failed


def _read(table: pd.DataFrame, request: Request, full: float | None) -> Group:
    points, notes = reader.points(table, x=request.x, y=request.y, cluster=request.cluster, full=full)
    form = forms.POWER if request.form == "auto" else forms.FORMS[request.form]
    if len(request.x) != form.inputs:
        raise UserError(
            f"The form {request.form!r} takes {form.inputs} x columns, not {','.join(request.x)!r}.", form.formula
        )
    fit.check(points, form)
    if form not in forms.CURVES:
        return Group(points=points, rows=points, notes=notes, law=None, fits=(), withheld=None)
    if request.form == "auto" and (far := extrapolation.far_off_runs(points)).any():
        notes = [*notes, *_left_out(points, far)]
        points = dataclasses.replace(points.take(~far), share=points.share)
    rows = points
    if len(points) > MAX_ROWS:
        points = points.averaged()
        notes = [*notes, f"{len(rows):,} rows are fitted as {len(points):,} means of neighbours in x."]
    fits = averaging.fits_of(points, forms.CURVES, loss=request.loss, delta=request.delta)
    withheld = _withheld(points, request)
    law = dataclasses.replace(_law(points), withheld=withheld) if request.form == "auto" else None
    return Group(points=points, rows=rows, notes=notes, law=law, fits=tuple(fits), withheld=withheld)


def _residuals(law: fit.FormFit, rows: fit.Points) -> np.ndarray:
    return np.log(rows.y) - law.log_predict(rows.x)


def _law(points: fit.Points) -> Forecast:
    """Return the law that predicts: the median of the forms that bend in log-log coordinates, or a power law if there
    are too few points for any of these."""
    try:
        return extrapolation.forecast(points)
    except UserError:
        return extrapolation.forecast(points, [forms.POWER])


def _left_out(points: fit.Points, far: np.ndarray) -> list[str]:
    runs = [f"x = {compact(x)}, y = {significant(y, 4)}" for x, y in zip(points.x[0, far], points.y[far], strict=True)]
    return [
        f"{plural(len(runs), 'run')} left out, more than {FAR:g} times as far off the others as these are rough: "
        f"{'; '.join(runs[: reader.MAX_NAMED])}{' and others' if len(runs) > reader.MAX_NAMED else ''}. "
        "Did they diverge? A form that is given keeps them."
    ]


def _withheld(points: fit.Points, request: Request) -> str | None:
    """Return the reason why a law of these points gives no intervals beyond them; None if it does."""
    what = "are" if request.schedule == "decay" else "look like" if _one_run(points, request) else None
    return what and (
        f"these {what} evaluations of one run, which are no scaling curve where its rate decays: a longer run decays "
        "later. Runs that end at several x are one, or cool-down branches of one run"
        + ("" if request.schedule else " (--schedule constant or runs, if that is what they are)")
    )


def _one_run(points: fit.Points, request: Request) -> bool:
    """Return whether all points seem to be evaluations of one run, by their trunk or their spacing; False if the
    request says what they are (`schedule`)."""
    named = request.cluster is not None and len(set(points.cluster.tolist())) == 1 < len(points)
    return request.schedule is None and (named or table_diagnostics.is_one_run(points))


def _nearest(groups: Sequence[Group]) -> forms.Form:
    """Return the form whose parameters are shown for all groups: the form whose fits are nearest to the groups' laws,
    at the end of the points and beyond.

    A law is a median of several forms; the result is one of these, or a power law. Of forms that are equally near, to
    within `AS_NEAR`, it is the one with the fewest parameters.
    """
    apart: dict[str, list[float]] = {}
    for group in groups:
        assert group.law is not None
        at = group.points.x.max() * np.array([NEAREST_AT])
        members = {forms.POWER.name, *(made.form.name for made in group.law.fits)}
        for made in (made for made in group.fits if made.form.name in members):
            missed = np.abs(made.log_predict(at) - group.law.log_predict(at))
            apart.setdefault(made.form.name, []).append(float(missed.mean()))
    means = {name: float(np.mean(each)) for name, each in apart.items() if len(each) == len(groups)}
    near = [name for name, value in means.items() if value <= min(means.values()) + AS_NEAR]
    return min((forms.FORMS[name] for name in near), key=lambda form: form.size)


def _middle(every: list[fit.Points]) -> float:
    """Return the geometric middle of the range of the first input that the points of all groups cover; if they cover no
    common range, of the whole range. `every`: the points of each group."""
    least, most = ([float(end(p.x[0])) for p in every] for end in (np.min, np.max))
    low, high = max(least), min(most)
    return math.sqrt(low * high) if low < high else math.sqrt(min(least) * max(most))


def _fit(
    group: Group,
    form: forms.Form,
    request: Request,
    *,
    middle: float,
    seed: int,
    held: HeldOutRuns | None = None,
) -> tuple[dict[str, Any], Averaged]:
    """Fit one group's law. Return the results as JSON types (card of the fit, intervals of its parameters and of the
    quantities that forms can be compared by, predictions, warnings), and its refits.

    Args:
        form: the form that is fitted; under "auto", the form whose parameters are shown.
        middle: x at which slopes are compared.
        seed: number of the group, from which the random seed of its resamples is made.
        held: the group's rows that are not fitted.
    """
    points = group.points
    delta = request.delta or (fit.CHINCHILLA_DELTA if form.name == "chinchilla" else None)
    law = fit.fit(points, form, loss=request.loss, delta=delta)
    given = bootstrap.resample(law, draws=request.draws, seed=SEED_STRIDE * seed)
    resampled = averaging.alone(given)
    if request.form == "auto":
        resampled = averaging.average(group.fits, shown=law, draws=request.draws, seed=SEED_STRIDE * seed + 1)
    quantities = averaging.comparable(resampled, middle) if len(request.x) == 1 else {}
    compared = {name: dataclasses.asdict(quantity) for name, quantity in quantities.items()}
    unresolved = diagnostics.unresolved(law)
    fitted: dict[str, Any] = {
        "card": law.card(),
        "level": bootstrap.LAW_LEVEL,
        "resampling": resampled.method,
        "forms": group.weights,
        "over_forms": compared if request.form == "auto" else {},
        "slope": compared.get("slope"),
        "slope_at": middle,
        "intervals": {name: list(ends) for name, ends in given.parameters().items()},
        "unresolved": unresolved,
        "notes": group.notes,
        "asks": (asks := table_diagnostics.check_direction(points)),
        "warnings": asks
        + diagnostics.warnings(law, repeated=len(np.unique(group.rows.x, axis=1).T) < len(group.rows))
        + diagnostics.check_errors(points)
        + table_diagnostics.check_autocorrelation(law)
        + table_diagnostics.check_exponents(law)
        + table_diagnostics.check_groups(_residuals(law, group.rows), group.rows.labels)
        + _ruled_out(form, group.weights, auto=request.form == "auto"),
    }
    if request.published:
        fitted["warnings"] += table_diagnostics.check_published(law, request.published)
    unasked = request.at is None and not (request.backtest or request.reach or request.curves)
    if unasked and request.form != "auto":
        return fitted, resampled
    if (made := group.law) is None:
        made = extrapolation.forecast(points, [form], loss=law.loss, delta=law.delta, half_life=None)
        made = dataclasses.replace(made, fits=(law,), withheld=group.withheld)
    fitted["predicted_by"] = [one.form.name for one in made.fits]
    top = 1.0 if points.share else np.inf  # an error that is a fraction of images is at most 1
    if request.curves:
        asked = [] if request.at is None else request.at[0].tolist()
        unfitted = {"x": [], "y": []} if held is None else {"x": held.x[0].tolist(), "y": held.y.tolist()}
        far = max([CURVE_REACH * float(points.x.max()), *asked, *unfitted["x"]])
        fitted["curve"] = curve(made, resampled, points, far=far, top=top)
        fitted |= {"points": {"x": points.x[0].tolist(), "y": points.y.tolist()}, "held": unfitted}
    if request.at is not None:
        fitted["predictions"] = predictions(made, made.bands(resampled, request.at), request.at, top=top)
    fitted["reached"] = [reached(made, resampled, wanted, share=points.share) for wanted in request.reach]
    fitted["warnings"] += _bends(made) + (
        [f"{group.withheld[0].upper()}{group.withheld[1:]}."] if group.withheld else []
    )
    if request.backtest:
        fitted["backtest"] = backtest(made)
    return fitted, resampled


def curve(made: Forecast, resampled: Averaged, points: fit.Points, *, far: float, top: float) -> dict[str, list[Any]]:
    """Return the law that predicts as a curve for a figure, one list per column: x, y, the intervals of y, and whether
    x is beyond the largest run. The curve goes from the smallest run to x = `far`, or to the largest run if the law
    gives no intervals beyond it. `top`: upper limit of y."""
    low, high = float(points.x.min()), float(points.x.max())
    beyond = np.geomspace(high, far, CURVE_POINTS)[1 : None if made.answers else 1]
    x = np.concatenate([np.geomspace(low, high, CURVE_POINTS), beyond])
    rows = predictions(made, made.bands(resampled, x[None]), x[None], top=top)
    columns: dict[str, list[Any]] = {
        name: [row[name] for row in rows] for name in ("x", "y", "within", "total", "one_run")
    }
    return columns | {"beyond": [row["reach"] > 1 for row in rows]}


def _ruled_out(form: forms.Form, weights: Mapping[str, float], *, auto: bool) -> list[str]:
    """Return a warning if the points contradict the form whose parameters are shown (its weight is below `RULED_OUT`),
    else []. `auto`: whether the user left the form to the program, so that intervals over all forms are printed too."""
    weight = weights.get(form.name, 0.0)
    if not weights or weight >= RULED_OUT:
        return []
    best = next(iter(weights))
    where = "stand above" if auto else "come with --form auto"
    return [
        f"These points speak against a {form_name(form.name)} (weight {weight:.2%}; {form_name(best)} has "
        f"{weights[best]:.0%}): intervals of "
        f"its parameters are too narrow. Intervals over all forms {where}."
    ]


def predictions(made: Forecast, bands: Bands, at: np.ndarray, *, top: float = np.inf) -> list[dict[str, Any]]:
    """Return one row for each prediction, with its intervals; an interval that the data do not support is None.

    Args:
        bands: predictions and intervals at `at`.
        at: x of the predictions, (inputs, n).
        top: upper limit of y.
    """
    rows = []
    for i, distance in enumerate(made.distance(at)):
        ends = {name: np.minimum(getattr(bands, name)[i], top).tolist() for name in ("within", "total", "one_run")}
        rows.append(
            {
                "x": at[:, i].tolist() if len(at) > 1 else float(at[0, i]),
                "y": min(float(bands.y[i]), top),
                **{name: both if np.isfinite(both).all() else None for name, both in ends.items()},
                "observed": None,
                "reach": float(bands.reach[i]),
                "record": past_error(made, float(distance)) if distance > 0 else None,
                "refused": _why_not(made, float(distance)),
            }
        )
    return rows


def _why_not(made: Forecast, distance: float) -> str | None:
    """Return the reason why there is no interval at a log `distance` beyond the data (negative: below them), and which
    runs would change that; None if there is an interval."""
    if distance < 0:
        return "it lies below the data, where nothing was tested; a run there would tell"
    if distance == 0 or made.answers:
        return None
    more = extrapolation.MIN_PLACES - made.prior.places
    return made.withheld or f"an interval takes {extrapolation.MIN_PLACES} values of x; run {more} more"


def reached(made: Forecast, resampled: Averaged, wanted: float, *, share: bool) -> dict[str, float | str | None]:
    """Return the x at which one more run would have the y `wanted`, with both ends of its interval; an end that is
    unknown is None, and "why" gives the reason.

    Args:
        share: whether the table has accuracies, so that `wanted` is one.
    """
    y = _error_of(wanted) if share else wanted
    ends = extrapolation.reached(made.grid, made.bands(resampled, made.grid[None]), y)
    why = _why_not(made, np.inf)
    far = f"not within {extrapolation.REACH:g} times the data" if not why else f"not within the data; beyond, {why}"
    why = "at the smallest x already" if ends.x == 0 else far if np.isinf(ends.x) else "upper end: " + far
    known = {name: value if 0 < value < np.inf else None for name, value in dataclasses.asdict(ends).items()}
    open_ended = not known["x"] or np.isinf(ends.high)
    return {
        "y": wanted,
        **known,
        "reach": (known["x"] or 0) / made.fits[0].range[1],
        "why": why if open_ended else None,
    }


def _bends(made: Forecast) -> list[str]:
    """Return a warning if the last point is outside the interval predicted from points before it, else []."""
    missed = made.departure()
    if missed is None:
        return []
    origin = made.origins[0]
    size = f"{percent(abs(float(np.expm1(missed))))} % {'above' if missed > 0 else 'below'}"
    return [
        f"The last point lies {size} what the points up to x = {compact(origin.end)} gave, outside their interval: the "
        "curve bends at its end, and may go on to."
    ]


@dataclass(frozen=True, kw_only=True, eq=False)
class HeldOutRuns:
    """Rows that are not fitted, for comparison with predictions: x (inputs, n); y (n,), as a loss or an error; and the
    name of each row's group (n,)."""

    x: np.ndarray
    y: np.ndarray
    group: np.ndarray

    def of(self, name: str) -> HeldOutRuns:
        """Return the rows of one group that have a y."""
        kept = (self.group == name) & np.isfinite(self.y)
        return HeldOutRuns(x=self.x[:, kept], y=self.y[kept], group=self.group[kept])


def _seen(table: pd.DataFrame, held: pd.DataFrame, request: Request, full: float | None) -> HeldOutRuns:
    """Return the held-out rows. They are read together with the fitted rows, so that columns are interpreted alike."""
    both = pd.concat([table, held.drop_duplicates()])
    if request.form in JOINT_FORMS:
        both = reader.with_inputs(both, request.x)[0]
    rows = slice(len(table), None)
    x_IN = np.stack([reader.numbers(both, name)[rows] for name in request.x])
    group = (
        both[reader.column(both, request.group)].map(reader.group_name).to_numpy()
        if request.group
        else np.full(len(both), ONLY_GROUP)
    )
    return HeldOutRuns(x=x_IN, y=reader.outcomes(both, request.y, full)[rows], group=group[rows])


def observed(seen: HeldOutRuns, at: np.ndarray, prediction: Mapping[str, Any]) -> dict[str, Any] | None:
    """Compare the held-out runs at one x (`at`, (inputs,)) with a prediction: mean of y, number of runs, and how many
    lie inside the prediction's widest interval. None if there are no runs at this x."""
    here = np.isclose(seen.x, at[:, None], rtol=1e-9, atol=0).all(axis=0)
    if not here.any():
        return None
    name = next((name for name in ("one_run", "total", "within") if prediction[name]), None)
    low, high = prediction[name] if name else (-np.inf, np.inf)
    inside = int(((low <= seen.y[here]) & (seen.y[here] <= high)).sum()) if name else None
    return {"y": float(seen.y[here].mean()), "n": int(here.sum()), "interval": name, "inside": inside}


def past_error(made: Forecast, distance: float) -> dict[str, Any]:
    """Return how far off predictions from the points up to an earlier x were, at about a log `distance` beyond it: an
    `extrapolation.PastError` as a dictionary."""
    return dataclasses.asdict(made.past_error(distance)) if made.origins else {"origins": 0}


def backtest(made: Forecast) -> dict[str, Any]:
    """Return, for fits up to several earlier x (origins), the errors of their predictions at some multiples of that x,
    and whether the interval that would have been given there contained the measured value."""
    rows: list[dict[str, Any]] = []
    for number, origin in enumerate(made.origins):
        before = made.before(number)
        factors = [f for f in FACTORS if np.log(f) <= origin.distance.max() * 1.1]
        judged = [origin.nearest(float(np.log(f))) for f in factors] or [(origin.distance[-1], origin.errors[-1])]
        widths = [before.sides(float(d)) for d, _ in judged]
        rows.append(
            {
                "end": origin.end,
                "points": origin.points,
                "beyond": [
                    {
                        "factor": float(np.exp(d)),
                        "error": float(np.expm1(e)),
                        "half_width": _finite(w.mean()),
                        "held": bool(-w[0] <= e <= w[1]) if np.isfinite(w).all() else None,
                    }
                    for (d, e), w in zip(judged, widths, strict=True)
                ],
            }
        )
    held = [b["held"] for row in rows for b in row["beyond"][-1:] if b["held"] is not None]
    curves = [
        {"end": o.end, "factor": np.exp(o.distance).tolist(), "error": np.expm1(o.errors).tolist()}
        for o in made.origins
    ]
    distances = np.linspace(extrapolation.MIN_DISTANCE, np.log(10.0), 30)
    band = [[float(np.exp(d)), *map(_finite, np.expm1(made.sides(float(d)) * [-1, 1]))] for d in distances]
    return {
        "rows": rows,
        "intervals_held": sum(held),
        "intervals_judged": len(held),
        "curves": curves,
        "band": band,
    }


def _isoflop(table: pd.DataFrame, request: Request, full: float | None) -> dict[str, Any]:
    """Return the isoFLOP analysis as JSON types: the best model size at each budget, and the law through these."""
    if request.group:
        raise UserError(
            "The form 'isoflop' fits one set of budgets at a time.",
            f"Instead of --group choose the rows: --where {request.group}=VALUE.",
        )
    if not request.budget:
        raise UserError("The form 'isoflop' needs the column of budgets.", "Add --budget flops.")
    points, notes = reader.points(table, x=(request.budget, *request.x), y=request.y, full=full)
    made = isoflop.fit(points.x[0], points.x[1], points.y)
    fitted = {name: value for name, value in dataclasses.asdict(made).items() if name != "lines"}
    fitted["dropped"] = [*points.dropped, *fitted["dropped"]]
    if request.at is not None:
        budgets, sizes = (np.array([getattr(m, name) for m in made.minima]) for name in ("budget", "size"))
        line = fit.Points(x=budgets[None], y=sizes, cluster=np.arange(len(sizes)))
        law = extrapolation.forecast(line, [forms.POWER], half_life=None)
        centre = np.log([made.predict(c) for c in request.at[0]])
        ends = np.log([made.interval(c) for c in request.at[0]])
        bands = law.widen(centre, np.abs(ends - centre[:, None]), request.at)
        fitted["predictions"] = [
            {
                "budget": p["x"],
                "size": p["y"],
                **{name: p[name] for name in ("within", "total", "reach", "record", "refused")},
            }
            for p in predictions(law, bands, request.at)
        ]
    residuals = isoflop.residuals_by_budget(points.x[0], points.x[1], points.y)
    return {"isoflop": fitted, "notes": notes, "warnings": table_diagnostics.check_groups(residuals, points.labels)}


def _finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
