"""The scaling laws fitted to a study: as data for fits.json and the figure, and as labelled text for the page."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np

from bench.analysis.evidence import Evidence, kept
from bench.analysis.finding import Axis
from bench.analysis.scaling_laws import Law, laws, why_not
from bench.core.formatting import count, flops, plural, significant
from bench.laws import averaging, bootstrap, diagnostics
from bench.laws.forms import MAX_EPOCHS
from bench.laws.wording import over_forms, weights
from bench.validity.mixed_laws import refusal

CURVE_POINTS = 121  # points of a curve: enough to draw a bend without corners
CURVE_REACH = 3.0  # factor beyond the largest run up to which a curve is drawn
DIGITS = 4  # significant digits; an optimiser's last steps differ between processors
FLAT_SLOPE = 1e-8  # a gradient below it is rounding noise
AXES: dict[str, str] = {Axis.COMPUTE: "compute", Axis.IMAGES: "distinct images"}  # in sentences


def cards(evidence: Evidence) -> list[dict[str, Any]]:
    """Return one dictionary for each family and axis that a law could be fitted to, with numbers rounded.

    Keys: family, axis ("compute" in FLOP or "images"), measure, y (what is fitted), card (see `Fit.card`), level (of
    intervals), parameters ({name: {value, within: [low, high]}}), forms_tried, forms (their weights), over_forms
    ({slope, floor, exponent: {value, low, high}}; the slope at x = slope_at), frontier ({x, error} of each best point,
    corrected for being chosen as best), runs ({x, error} of each run that was fitted, one per seed), selection_bias
    (mean correction for choosing the best), lack_of_fit (p-value, and largest deviation from group means; None where
    nothing was repeated), warnings, curve ({x, y, within, total, beyond}: y of the law, its two intervals, and whether
    x is beyond the runs).
    """
    if not evidence.headline:
        return []
    return list(_cards(evidence))


@kept
def _cards(evidence: Evidence) -> tuple[dict[str, Any], ...]:
    return tuple(
        rounded(_card(evidence, law), DIGITS) for axis in AXES for law in laws(evidence, axis=Axis(axis)).values()
    )


def missing(evidence: Evidence) -> list[str]:
    """Return a sentence for each family and axis without a law, which says why there is none."""
    if not evidence.headline:
        return []
    return [
        refusal(reason, against=AXES[axis]) for axis in AXES for reason in why_not(evidence, axis=Axis(axis)).values()
    ]


def rounded(value: Any, digits: int) -> Any:
    """Return a value as JSON types, with numbers rounded to `digits` significant digits. A number that is not finite
    becomes None."""
    if isinstance(value, Mapping):
        return {str(key): rounded(item, digits) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(item, digits) for item in value]
    if isinstance(value, float):
        return float(f"{value:.{digits}g}") if math.isfinite(value) else None
    return value


def _card(evidence: Evidence, law: Law) -> dict[str, Any]:
    made = law.within.fit
    ends = law.within.parameters()
    x, y = law.frontier
    middle = math.sqrt(law.range[0] * law.range[1])
    card = made.card()
    card["gradient_below"] = 10.0 ** math.ceil(math.log10(max(float(card.pop("largest_gradient")), FLAT_SLOPE)))  # type: ignore[arg-type]
    return {
        "family": law.family,
        "axis": str(law.axis),
        "measure": law.measure,
        "y": "1 - accuracy",
        "card": card,
        "level": bootstrap.LAW_LEVEL,
        "resampling": law.within.method,
        "parameters": {name: {"value": value, "within": list(ends[name])} for name, value in made.parameters.items()},
        "forms_tried": [
            {"form": r.form.name, "extrapolation_rms_log": r.extrapolation_rmse, "rollouts": r.rollouts}
            for r in law.ranked
        ],
        "unresolved": diagnostics.unresolved(made),
        "origins": len(law.forecast.origins),
        "forms": dict(law.averaged.weights),
        "over_forms": {name: asdict(q) for name, q in averaging.comparable(law.averaged, middle).items()},
        "slope_at": middle,
        "frontier": [{"x": float(a), "error": float(b)} for a, b in zip(x, y, strict=True)],
        "runs": [{"x": float(a), "error": float(b)} for a, b in zip(made.points.x[0], made.points.y, strict=True)],
        "points_tried": law.tried,
        "selection_bias": law.bias,
        "lack_of_fit": None if law.lack_of_fit is None else asdict(law.lack_of_fit) | {"fails": law.lack_of_fit.fails},
        "warnings": _warnings(evidence, law),
        "curve": _curve(law),
    }


def _warnings(evidence: Evidence, law: Law) -> list[str]:
    """Return sentences on why a law is less reliable than it looks."""
    repeated = any(len(p.seeds) > 1 for p in law.points)
    most = max(p.epochs for p in law.points)
    repeats = law.axis == Axis.COMPUTE and most > MAX_EPOCHS and not evidence.published
    worst = law.lack_of_fit.worst if law.lack_of_fit is not None and law.lack_of_fit.fails else 0.0
    points = significant(100 * law.bias, 2)
    biased = law.bias > 0.5 * law.noise > 0
    own = (
        repeats and f"Data were repeated up to {most:.0f} times: the law holds for this many distinct images only.",
        worst and f"Lack of fit: the law misses a group mean by {worst:.0%} of its error.",
        biased and f"Best points were chosen from noisy ones: corrected by {points} points on average.",
    )
    fit = law.within.fit
    checked = diagnostics.warnings(fit, repeated=repeated) + diagnostics.check_errors(fit.points)
    return [*checked, *(warning for warning in own if warning)]


def _curve(law: Law) -> dict[str, list[Any]]:
    low, high = law.range
    x = np.geomspace(low, high * CURVE_REACH, CURVE_POINTS)
    within = [bootstrap.quantiles(column, bootstrap.LAW_LEVEL) for column in law.within.predictions(x).T]
    return {
        "x": x.tolist(),
        "y": law.within.fit.predict(x).tolist(),
        "beyond": (x > high * (1 + 1e-9)).tolist(),
        "within": np.where(x[:, None] > high * (1 + 1e-9), np.nan, within).tolist(),
        "total": law.bands(x).total.tolist(),
    }


def heading(card: Mapping[str, Any]) -> str:
    return f"{card['family']}: error against {AXES[card['axis']]}, {card['card']['formula']}"


def facts(card: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return (label, text) of every fact on a law, given as `cards` returns it."""
    fit = card["card"]
    parameters = [
        f"{name} is not determined"
        if name in card["unresolved"]
        else f"{name} = {_number(p['value'])} [{_number(p['within'][0])}, {_number(p['within'][1])}]"
        for name, p in card["parameters"].items()
    ]
    tried = [
        f"{form['form']} {_number(form['extrapolation_rms_log'], 'not tried, too few points')}"
        for form in card["forms_tried"]
    ]
    return [
        ("Form", f"{fit['form']}: {fit['formula']}"),
        ("Forms and their weights", weights(card["forms"])),
        (f"Over these forms, {card['level']:.0%}", "; ".join(over_forms(card["over_forms"], _at(card)))),
        (f"Parameters if y follows {fit['form']}, {card['level']:.0%}", "; ".join(parameters)),
        (
            "Intervals",
            f"{card['resampling']}; total interval over these forms and their losses; beyond the points also from "
            f"{plural(card['origins'], 'earlier origin')}",
        ),
        ("Loss", str(fit["loss"])),
        ("Points", f"{fit['points']} runs in {fit['clusters']} trunks; {card['points_tried']} points tried"),
        ("Dropped", "; ".join(str(item) for item in fit["dropped"]) or "none"),
        ("Range of x", " to ".join(map(flops if card["axis"] == Axis.COMPUTE else count, fit["x_range"]))),
        (
            "Optimiser",
            f"{fit['starts']} starts, {fit['starts_that_agree']} agree; objective "
            f"{_number(fit['objective_at_start'])} → {_number(fit['objective'])}; gradient below "
            f"{fit['gradient_below']:.0g}",
        ),
        ("Residuals", f"{_number(fit['rms_log_residual'])} (root mean square, log)"),
        ("Forms by extrapolation error", "; ".join(tried)),
        ("Software", ", ".join(f"{name} {version}" for name, version in sorted(fit["software"].items()))),
    ]


def _at(card: Mapping[str, Any]) -> str:
    return flops(card["slope_at"]) if card["axis"] == Axis.COMPUTE else f"{significant(card['slope_at'])} images"


def _number(value: float | None, missing: str = "–") -> str:
    return missing if value is None else significant(value)
