"""Laws through a table of runs from anywhere: one per group, with predictions, their record, and where groups cross."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd

from bench.analysis import runs_table as reader
from bench.core.errors import UserError, unknown
from bench.stats import (
    averaging,
    bootstrap,
    diagnostics,
    extrapolation,
    fit,
    forms,
    isoflop,
    model_selection,
    table_diagnostics,
)
from bench.stats.averaging import Averaged
from bench.stats.crossing import crossing
from bench.stats.extrapolation import Bands, Forecast

JOINT_FORMS = ("chinchilla", "repeated")
ISOFLOP = "isoflop"
ONLY_GROUP = "all"  # name of the only group
MAX_GROUPS = 50
SEEDS = 100_000  # between the seeds of two groups
RULED_OUT = 0.01  # weight below which the points speak against a form
FACTORS = (2.0, 4.0, 8.0)  # beyond an origin, at which the record is listed


@dataclass(frozen=True, kw_only=True)
class Request:
    """A request for a fit, as the command line gives it. `at`: places to predict, (inputs, n)."""

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
    published: Mapping[str, float] | None = None
    draws: int = 400
    backtest: bool = False


@dataclass(frozen=True, kw_only=True, eq=False)
class Group:
    """One group's points, what was noted on reading them, and, where the form is not given, its forecast by every form.

    `fits`: of every form of one input to all points; () where the law has several.
    """

    points: fit.Points
    notes: list[str]
    forecast: Forecast | None
    fits: tuple[fit.FormFit, ...]

    @property
    def weights(self) -> dict[str, float]:
        """Every form that the points allow, the largest first."""
        return averaging.form_weights(self.fits) if self.fits else {}


def answer(table: pd.DataFrame, request: Request, *, held: pd.DataFrame | None = None) -> dict[str, Any]:
    """Fit as the options require; JSON types.

    Args:
        held: rows that are not fitted; their values stand beside the predictions at their x.

    Raises:
        UserError: unknown names, points that do not belong together or are too few, in every group.
    """
    known = (*forms.FORMS, "auto", ISOFLOP)
    if request.form not in known:
        raise unknown("form", request.form, known)
    table, notes = reader.with_inputs(table, request.x) if request.form in JOINT_FORMS else (table, [])
    warnings = reader.guard(table, x=request.x, y=request.y, group=request.group)
    if request.form == ISOFLOP:
        return _isoflop(table, request)
    groups, refused = _groups(table, request)
    auto = request.form == "auto"
    ranked = model_selection.rank([g.forecast for g in groups.values() if g.forecast]) if auto else []
    weights = [group.weights for group in groups.values()]
    form = model_selection.select(ranked, weights) if auto else forms.FORMS[request.form]
    middle = _middle([group.points for group in groups.values()])
    made = {
        name: _fit(group, form, ranked, request, middle=middle, seed=number)
        for number, (name, group) in enumerate(groups.items())
    }
    if held is not None and len(held) and request.at is not None:
        seen = _seen(table, held, request)
        for name, (card, _) in made.items():
            for at, prediction in zip(request.at.T, card["predictions"], strict=True):
                prediction["observed"] = observed(seen, name, at, prediction)
    result: dict[str, Any] = {
        "fits": {name: card for name, (card, _) in made.items()},
        "refused": refused,
        "warnings": warnings,
        "notes": notes,
    }
    if len(made) > 1 and len(request.x) == 1:
        result["crossings"] = [
            {"first": a, "second": b, **dataclasses.asdict(crossing(made[a][1], made[b][1], names=(a, b)))}
            for a, b in combinations(sorted(made), 2)
        ]
    return result


def _groups(table: pd.DataFrame, request: Request) -> tuple[dict[str, Group], dict[str, str]]:
    """Groups that can be fitted, and why the others cannot."""
    parts = {ONLY_GROUP: table}
    if request.group:
        parts = {str(name): part for name, part in table.groupby(reader.column(table, request.group), sort=True)}
    if len(parts) > MAX_GROUPS:
        raise UserError(
            f"{request.group!r} names {len(parts):,} groups; at most {MAX_GROUPS} are fitted at once.",
            "Choose some of them with --where.",
        )
    groups: dict[str, Group] = {}
    refused: dict[str, str] = {}
    for name, part in parts.items():
        try:
            groups[name] = _read(part, request)
        except UserError as error:
            if len(parts) == 1:
                raise
            refused[name] = str(error.what)
    if not groups:
        raise UserError(
            "No group can be fitted: " + " ".join(f"{k}: {v}" for k, v in refused.items()),
            "Add runs, or choose a form with fewer parameters (--form power has 2).",
        )
    return groups, refused


def _read(table: pd.DataFrame, request: Request) -> Group:
    points, notes = reader.points(table, x=request.x, y=request.y, cluster=request.cluster, accuracy=request.accuracy)
    form = forms.POWER if request.form == "auto" else forms.FORMS[request.form]
    if len(request.x) != form.inputs:
        raise UserError(
            f"The form {request.form!r} takes {form.inputs} x columns, not {','.join(request.x)!r}.", form.formula
        )
    fit.check(points, form)
    made = extrapolation.forecast(points, forms.CURVES) if request.form == "auto" else None
    one_input = form in forms.CURVES
    fits = averaging.fits_of(points, forms.CURVES, loss=request.loss, delta=request.delta) if one_input else []
    return Group(points=points, notes=notes, forecast=made, fits=tuple(fits))


def _middle(every: list[fit.Points]) -> float:
    """The geometric middle of the first input, of the range that all groups cover where there is one."""
    least, most = ([float(end(p.x[0])) for p in every] for end in (np.min, np.max))
    low, high = max(least), min(most)
    return math.sqrt(low * high) if low < high else math.sqrt(min(least) * max(most))


def _fit(
    group: Group,
    form: forms.Form,
    ranked: list[model_selection.Ranked],
    request: Request,
    *,
    middle: float,
    seed: int,
) -> tuple[dict[str, Any], Averaged]:
    """One group's law: card, intervals of its parameters and of what can be compared between forms, predictions with
    their record, warnings.

    Args:
        middle: x at which slopes are compared. seed: of the resamples, another one for each group.
    """
    points = group.points
    delta = request.delta or (fit.CHINCHILLA_DELTA if form.name == "chinchilla" else None)
    law = fit.fit(points, form, loss=request.loss, delta=delta)
    given = bootstrap.resample(law, draws=request.draws, seed=SEEDS * seed)
    resampled, over_forms = averaging.alone(given), {}
    if request.form == "auto":
        resampled = averaging.average(group.fits, shown=law, draws=request.draws, seed=SEEDS * seed + 1)
        over_forms = {name: dataclasses.asdict(q) for name, q in averaging.comparable(resampled, middle).items()}
    unresolved = diagnostics.unresolved(law)
    found: dict[str, Any] = {
        "card": law.card(),
        "level": bootstrap.LAW_LEVEL,
        "resampling": resampled.method,
        "forms": group.weights,
        "over_forms": over_forms,
        "slope_at": middle,
        "intervals": {name: list(ends) for name, ends in given.parameters().items()},
        "unresolved": unresolved,
        "forms_tried": [
            {"form": r.form.name, "extrapolation_rms_log": _finite(r.extrapolation_rmse), "origins": r.rollouts}
            for r in ranked
        ],
        "notes": group.notes,
        "warnings": diagnostics.warnings(law, repeated=len(np.unique(points.x, axis=1).T) < len(points))
        + diagnostics.check_errors(points)
        + table_diagnostics.check_direction(points)
        + table_diagnostics.check_autocorrelation(law)
        + table_diagnostics.check_exponents(law)
        + table_diagnostics.check_groups(law.residuals, points.labels)
        + _ruled_out(form, group.weights, auto=request.form == "auto"),
    }
    if request.published:
        found["warnings"] += table_diagnostics.check_published(law, request.published)
    if request.at is None and not request.backtest:
        return found, resampled
    if group.forecast is not None:
        made = group.forecast.of(extrapolation.BENDING)
        made = made if made.fits else group.forecast.of([form])
    else:
        made = extrapolation.forecast(points, [form], loss=law.loss, delta=law.delta, half_life=None)
        made = dataclasses.replace(made, fits=(law,))
    found["predicted_by"] = [one.form.name for one in made.fits]
    if request.at is not None:
        top = 1.0 if points.share else np.inf  # an error that is a share of images ends at 1
        found["predictions"] = predictions(made, made.bands(resampled, request.at), request.at, top=top)
    if request.backtest:
        found["backtest"] = backtest(made)
    return found, resampled


def _ruled_out(form: forms.Form, weights: Mapping[str, float], *, auto: bool) -> list[str]:
    """A warning where the points speak against the form whose parameters are shown."""
    weight = weights.get(form.name, 0.0)
    if not weights or weight >= RULED_OUT:
        return []
    best = next(iter(weights))
    where = "stand above" if auto else "come with --form auto"
    return [
        f"These points speak against {form.name} (weight {weight:.2%}; {best} has {weights[best]:.0%}): intervals of "
        f"its parameters are too narrow. Intervals over all forms {where}."
    ]


def predictions(made: Forecast, bands: Bands, at: np.ndarray, *, top: float = np.inf) -> list[dict[str, Any]]:
    """Predictions with intervals; None for those that no record supports. `top`: y lies below."""
    found = []
    for i, distance in enumerate(made.distance(at)):
        ends = {name: np.minimum(getattr(bands, name)[i], top).tolist() for name in ("within", "total", "one_run")}
        found.append(
            {
                "x": at[:, i].tolist() if len(at) > 1 else float(at[0, i]),
                "y": min(float(bands.y[i]), top),
                **{name: both if np.isfinite(both).all() else None for name, both in ends.items()},
                "observed": None,
                "reach": float(bands.reach[i]),
                "record": record(made, float(distance)) if distance > 0 else None,
            }
        )
    return found


@dataclass(frozen=True, kw_only=True, eq=False)
class UnfittedRows:
    """Rows that were not fitted: x (inputs, n), y (n,) as the fit reads it, and their groups."""

    x: np.ndarray
    y: np.ndarray
    group: np.ndarray


def _seen(table: pd.DataFrame, held: pd.DataFrame, request: Request) -> UnfittedRows:
    """Read beside the fitted rows, so that columns mean the same."""
    both = pd.concat([table, held.drop_duplicates()])
    if request.form in JOINT_FORMS:
        both = reader.with_inputs(both, request.x)[0]
    rows = slice(len(table), None)
    x_IN = np.stack([reader.numbers(both, name)[rows] for name in request.x])
    group = (
        both[reader.column(both, request.group)].map(str).to_numpy()
        if request.group
        else np.full(len(both), ONLY_GROUP)
    )
    return UnfittedRows(
        x=x_IN, y=reader.outcomes(both, request.y, accuracy=request.accuracy)[0][rows], group=group[rows]
    )


def observed(seen: UnfittedRows, group: str, at: np.ndarray, prediction: Mapping[str, Any]) -> dict[str, Any] | None:
    """The runs of a group at a place: mean, number, and how many lie in the widest interval that there is; None without
    any."""
    here = (seen.group == group) & np.isclose(seen.x, at[:, None], rtol=1e-9, atol=0).all(axis=0) & np.isfinite(seen.y)
    if not here.any():
        return None
    name = next((name for name in ("one_run", "total", "within") if prediction[name]), None)
    low, high = prediction[name] if name else (-np.inf, np.inf)
    inside = int(((low <= seen.y[here]) & (seen.y[here] <= high)).sum()) if name else None
    return {"y": float(seen.y[here].mean()), "n": int(here.sum()), "interval": name, "inside": inside}


def record(made: Forecast, distance: float) -> dict[str, Any]:
    """How far off the procedure was from earlier origins, at about a log distance or the farthest there is."""
    if not made.has_record:
        return {"origins": len(made.origins), "needed": extrapolation.MIN_ORIGINS}
    return dataclasses.asdict(made.past_error(distance))


def backtest(made: Forecast) -> dict[str, Any]:
    """The record: from every origin the error at some factors beyond it, and whether the interval then held it."""
    rows: list[dict[str, Any]] = []
    for number, origin in enumerate(made.origins):
        before = made.before(number)
        factors = [f for f in FACTORS if np.log(f) <= origin.distance.max() * 1.1]
        judged = [origin.nearest(float(np.log(f))) for f in factors] or [(origin.distance[-1], origin.errors[-1])]
        widths = [before.half_width(float(d)) for d, _ in judged]
        rows.append(
            {
                "end": origin.end,
                "points": origin.points,
                "beyond": [
                    {
                        "factor": float(np.exp(d)),
                        "error": float(np.expm1(e)),
                        "half_width": _finite(w),
                        "held": bool(abs(e) <= w) if np.isfinite(w) else None,
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
    band = [[float(np.exp(d)), _finite(np.expm1(made.half_width(float(d))))] for d in distances]
    return {
        "rows": rows,
        "intervals_held": sum(held),
        "intervals_judged": len(held),
        "curves": curves,
        "band": band,
        "needed": extrapolation.MIN_ORIGINS,
    }


def _isoflop(table: pd.DataFrame, request: Request) -> dict[str, Any]:
    """Best size at each budget, and its exponent."""
    if request.group:
        raise UserError(
            "The form 'isoflop' fits one set of budgets at a time.",
            f"Instead of --group choose the rows: --where {request.group}=VALUE.",
        )
    if not request.budget:
        raise UserError("The form 'isoflop' needs the column of budgets.", "Add --budget flops.")
    points, notes = reader.points(table, x=(request.budget, *request.x), y=request.y, accuracy=request.accuracy)
    made = isoflop.fit(points.x[0], points.x[1], points.y)
    found = {name: value for name, value in dataclasses.asdict(made).items() if name != "lines"}
    found["dropped"] = [*points.dropped, *found["dropped"]]
    if request.at is not None:
        budgets, sizes = (np.array([getattr(m, name) for m in made.minima]) for name in ("budget", "size"))
        line = fit.Points(x=budgets[None], y=sizes, cluster=np.arange(len(sizes)))
        law = extrapolation.forecast(line, [forms.POWER], half_life=None)
        centre = np.log([made.predict(c) for c in request.at[0]])
        ends = np.log([made.interval(c) for c in request.at[0]])
        bands = law.widen(centre, np.abs(ends - centre[:, None]), request.at)
        found["predictions"] = [
            {"budget": p["x"], "size": p["y"], **{name: p[name] for name in ("within", "total", "reach", "record")}}
            for p in predictions(law, bands, request.at)
        ]
    residuals = isoflop.residuals_by_budget(points.x[0], points.x[1], points.y)
    return {"isoflop": found, "notes": notes, "warnings": table_diagnostics.check_groups(residuals, points.labels)}


def _finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
