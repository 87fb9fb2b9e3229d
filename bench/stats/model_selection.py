"""Choice of a form by ordered extrapolation: fit the small, predict the large. In-sample error favours many parameters.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from bench.core.errors import UserError
from bench.stats.extrapolation import MIN_ORIGINS, Forecast
from bench.stats.fit import REFIT_FTOL, Points, fit
from bench.stats.forms import FORMS, Form

OCTAVE = math.log(2.0)
FRACTIONS = (0.5, 0.6, 0.7, 0.8, 0.9)
SIMPLER_WITHIN = 1.05  # a simpler form is preferred if its extrapolation error is within 5 % of the best,
MAX_IN_SAMPLE_RATIO = 2.0  # and its in-sample error at most twice the least among those


@dataclass(frozen=True, kw_only=True)
class Ranked:
    """A form's errors over `rollouts` ordered splits: rms of log prediction on the held-out points, and on the fitted
    points (corrected for the number of parameters)."""

    form: Form
    extrapolation_rmse: float
    rollouts: int
    in_sample_rmse: float = 0.0


def rank(points: Points, forms: Sequence[Form], *, max_starts: int = 400) -> list[Ranked]:
    """Forms by their error in ordered extrapolation along the first input, best first; infinite where a split cannot be
    fitted."""
    order = np.argsort(points.x[0], kind="stable")
    values = points.x[0][order]
    distinct = np.unique(values)
    scores: dict[str, list[float]] = {form.name: [] for form in forms}
    misses: dict[str, list[float]] = {form.name: [] for form in forms}
    for fraction in FRACTIONS:
        cut = distinct[min(len(distinct) - 2, max(0, math.ceil(fraction * len(distinct)) - 1))]
        small, large = points.take(order[values <= cut]), points.take(order[values > cut])
        if not len(large):
            continue
        for form in forms:
            try:
                made = fit(small, form, loss="squares", ftol=REFIT_FTOL, max_starts=max_starts)
            except UserError:
                continue
            error = np.log(large.y) - made.log_predict(large.x)
            scores[form.name].append(float(np.sqrt((error**2).mean())))
            misses[form.name].append(made.rms * math.sqrt(len(small) / (len(small) - form.size)))
    most = max((len(found) for found in scores.values()), default=0)
    ranked = [
        Ranked(form=form, rollouts=len(scores[form.name]), in_sample_rmse=_root_mean_square(misses[form.name]),
               extrapolation_rmse=_root_mean_square(scores[form.name] if len(scores[form.name]) == most else []))
        for form in forms
    ]  # fmt: skip
    return sorted(ranked, key=lambda r: (r.extrapolation_rmse, r.form.size))


def rank_forecasts(forecasts: Sequence[Forecast]) -> list[Ranked]:
    """Forms by their record one octave beyond earlier origins, best first; for several curves together, the geometric
    mean. Every form is judged by the same origins; one that too few of them can fit has infinite error."""
    errors: dict[str, list[float]] = {made.form.name: [] for made in forecasts[0].fits}
    inside: dict[str, list[float]] = {name: [] for name in errors}
    for made in forecasts:
        judged = sorted((m.form for m in made.fits), key=lambda form: form.size)
        while judged and len(common := made.judging(judged)) < min(MIN_ORIGINS, max(1, len(made.origins))):
            judged.pop()
        for fitted in made.fits:
            number, size = len(fitted.points), fitted.form.size
            inside.setdefault(fitted.form.name, []).append(fitted.rms * math.sqrt(number / (number - size)))
        for form in judged:
            errors.setdefault(form.name, []).append(replace(made, origins=common).of([form]).rate(OCTAVE) * OCTAVE)
    ranked = [
        Ranked(form=FORMS[name], rollouts=min(len(made.origins) for made in forecasts),
               extrapolation_rmse=_geometric_mean(errors.get(name, []), len(forecasts)),
               in_sample_rmse=_geometric_mean(found, len(forecasts)))
        for name, found in inside.items()
    ]  # fmt: skip
    return sorted(ranked, key=lambda r: (r.extrapolation_rmse, r.form.size))


def _geometric_mean(values: Sequence[float], expected: int) -> float:
    return float(np.exp(np.mean(np.log(np.maximum(values, 1e-300))))) if len(values) == expected else math.inf


def select(ranked: Sequence[Ranked]) -> Form:
    """The best form, or a simpler one that is practically as good, both beyond the points and on them. The simplest
    where no form has a record: in-sample errors favour the others."""
    best = ranked[0].extrapolation_rmse
    if not math.isfinite(best):
        return min(ranked, key=lambda r: r.form.size).form
    near = [r for r in ranked if r.extrapolation_rmse <= SIMPLER_WITHIN * best] or list(ranked[:1])
    least = min(r.in_sample_rmse for r in near)
    return min((r for r in near if r.in_sample_rmse <= MAX_IN_SAMPLE_RATIO * least), key=lambda r: r.form.size).form


def credible(ranked: Sequence[Ranked], *, factor: float = 2.0) -> list[Form]:
    """Forms whose extrapolation is within `factor` of the best: those that the total interval is taken over."""
    best = ranked[0].extrapolation_rmse
    near = [r for r in ranked if r.extrapolation_rmse <= factor * best and math.isfinite(r.extrapolation_rmse)]
    return [r.form for r in near or ranked[:1]]


def _root_mean_square(values: Sequence[float]) -> float:
    return math.sqrt(sum(v**2 for v in values) / len(values)) if values else math.inf
