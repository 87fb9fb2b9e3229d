"""Choice of a law's functional form by how well it extrapolated from earlier points (`bench.laws.extrapolation`).
Errors on the fitted points would favour forms with many parameters."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from bench.laws.extrapolation import Forecast
from bench.laws.forms import FORMS, Form

OCTAVE = math.log(2.0)
MIN_ORIGINS = 3  # forms are ranked by at least this many origins, where there are as many
RANKING_PLACES = 5  # an origin counts if it has this many distinct x before it: with fewer, few forms can be fitted
SIMPLER_WITHIN = 1.05  # a simpler form is preferred if its extrapolation error is at most this many times the best,
MAX_IN_SAMPLE_RATIO = 2.0  # and its in-sample error at most this many times the least among those


@dataclass(frozen=True, kw_only=True)
class Ranked:
    """A functional form of a law, and its errors: rms of log observed - log predicted y.

    Attributes:
        extrapolation_rmse: error one octave beyond the fitted points, in fits to the points up to earlier x (origins);
            infinite if it could not be measured.
        rollouts: number of these origins.
        in_sample_rmse: error on the fitted points, corrected for the number of parameters.
    """

    form: Form
    extrapolation_rmse: float
    rollouts: int
    in_sample_rmse: float = 0.0


def rank(forecasts: Sequence[Forecast]) -> list[Ranked]:
    """Rank forms by their extrapolation error, best first.

    Each form is fitted to the points up to an earlier x, the origin, and its error is measured one octave beyond it.
    All forms are judged by the same origins; a form that could be fitted at too few of them has an infinite error.

    Args:
        forecasts: for each curve, the fits of all forms. A form's error is the geometric mean over curves.
    """
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
    """Return the best form, or a simpler one that is practically as good, both beyond the points and on them.

    Args:
        ranked: forms with their errors, from `rank`.
        weights: for each curve, the weights of the forms (`averaging.form_weights`). Where no form has a finite
            extrapolation error, the form with the largest weight on all curves together is chosen; without weights, the
            simplest form, because in-sample errors favour the others.
    """
    best = ranked[0].extrapolation_rmse
    if not math.isfinite(best):
        by_size = sorted((r.form for r in ranked), key=lambda form: form.size)
        return max(by_size, key=lambda form: sum(math.log(max(w.get(form.name, 0.0), 1e-300)) for w in weights))
    near = [r for r in ranked if r.extrapolation_rmse <= SIMPLER_WITHIN * best] or list(ranked[:1])
    least = min(r.in_sample_rmse for r in near)
    return min((r for r in near if r.in_sample_rmse <= MAX_IN_SAMPLE_RATIO * least), key=lambda r: r.form.size).form
