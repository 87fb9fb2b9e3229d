"""Choice of a form by its record (`bench.laws.extrapolation`). In-sample error would favour many parameters."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from bench.laws.extrapolation import Forecast
from bench.laws.forms import FORMS, Form

OCTAVE = math.log(2.0)
MIN_ORIGINS = 3  # that forms are ranked by, where there are as many
RANKING_PLACES = 5  # distinct x that such an origin saw: with fewer, few forms can be fitted
SIMPLER_WITHIN = 1.05  # a simpler form is preferred if its extrapolation error is within 5 % of the best,
MAX_IN_SAMPLE_RATIO = 2.0  # and its in-sample error at most twice the least among those


@dataclass(frozen=True, kw_only=True)
class Ranked:
    """A form's rms errors of log y: one octave beyond `rollouts` earlier origins, and on the fitted points (corrected
    for the number of parameters)."""

    form: Form
    extrapolation_rmse: float
    rollouts: int
    in_sample_rmse: float = 0.0


def rank(forecasts: Sequence[Forecast]) -> list[Ranked]:
    """Forms by their record one octave beyond earlier origins, best first; for several curves together, the geometric
    mean. Every form is judged by the same origins; one that too few of them can fit has infinite error."""
    forecasts = [
        replace(made, origins=tuple(o for o in made.origins if o.prior.places >= RANKING_PLACES)) for made in forecasts
    ]
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
        Ranked(
            form=FORMS[name],
            rollouts=min(len(made.origins) for made in forecasts),
            extrapolation_rmse=_geometric_mean(errors.get(name, []), len(forecasts)),
            in_sample_rmse=_geometric_mean(own, len(forecasts)),
        )
        for name, own in inside.items()
    ]
    return sorted(ranked, key=lambda r: (r.extrapolation_rmse, r.form.size))


def _geometric_mean(values: Sequence[float], expected: int) -> float:
    return float(np.exp(np.mean(np.log(np.maximum(values, 1e-300))))) if len(values) == expected else math.inf


def select(ranked: Sequence[Ranked], weights: Sequence[Mapping[str, float]] = ()) -> Form:
    """The best form, or a simpler one that is practically as good, both beyond the points and on them.

    Args:
        weights: of forms for each curve (`Averaged.form_weights`). Where no form has a record, the one with most weight
            on all curves together is chosen; without weights, the simplest: in-sample errors favour the others.
    """
    best = ranked[0].extrapolation_rmse
    if not math.isfinite(best):
        by_size = sorted((r.form for r in ranked), key=lambda form: form.size)
        return max(by_size, key=lambda form: sum(math.log(max(w.get(form.name, 0.0), 1e-300)) for w in weights))
    near = [r for r in ranked if r.extrapolation_rmse <= SIMPLER_WITHIN * best] or list(ranked[:1])
    least = min(r.in_sample_rmse for r in near)
    return min((r for r in near if r.in_sample_rmse <= MAX_IN_SAMPLE_RATIO * least), key=lambda r: r.form.size).form
