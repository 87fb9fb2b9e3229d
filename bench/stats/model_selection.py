"""Which form to believe: fit the small, predict the large. In-sample error picks the most flexible, not the best."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bench.core.errors import UserError
from bench.stats.fit import QUICK, Points, fit
from bench.stats.form import Form

FRACTIONS = (0.5, 0.6, 0.7, 0.8, 0.9)
TIE = 1.05  # a simpler form wins if it is within 5 % of the best score,
CLOSE = 2.0  # unless it misses the points it was fitted to by more than twice as much as another of those


@dataclass(frozen=True, kw_only=True)
class Ranked:
    """A form's error on what it had not seen (`score`) and on what it had (`miss`): rms of log prediction, over
    `rollouts` ordered splits; `miss` is corrected for the parameters."""

    form: Form
    score: float
    rollouts: int
    miss: float = 0.0


def rank(points: Points, forms: Sequence[Form], *, max_starts: int = 400) -> list[Ranked]:
    """Score forms by ordered extrapolation in the first input, best first; one that no split fits scores infinity."""
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
                made = fit(small, form, loss="squares", relative=QUICK, max_starts=max_starts)
            except UserError:
                continue
            error = np.log(large.y) - made.log_predict(large.x)
            scores[form.name].append(float(np.sqrt((error**2).mean())))
            misses[form.name].append(made.rms * math.sqrt(len(small) / (len(small) - form.size)))
    most = max((len(found) for found in scores.values()), default=0)
    ranked = [
        Ranked(form=form, score=_mean(scores[form.name]) if len(scores[form.name]) == most and most else math.inf,
               rollouts=len(scores[form.name]), miss=_mean(misses[form.name]) if misses[form.name] else math.inf)
        for form in forms
    ]  # fmt: skip
    return sorted(ranked, key=lambda r: (r.score, r.form.size))


def choose(ranked: Sequence[Ranked]) -> Form:
    """The best form, or a simpler one that is practically as good, both beyond the points and on them."""
    best = ranked[0].score
    near = [r for r in ranked if r.score <= TIE * best] or list(ranked[:1])
    least = min(r.miss for r in near)
    return min((r for r in near if r.miss <= CLOSE * least), key=lambda r: r.form.size).form


def credible(ranked: Sequence[Ranked], *, factor: float = 2.0) -> list[Form]:
    """Forms whose extrapolation is within `factor` of the best: those that the total interval is taken over."""
    best = ranked[0].score
    return [r.form for r in ranked if r.score <= factor * best and math.isfinite(r.score)] or [ranked[0].form]


def _mean(values: Sequence[float]) -> float:
    """Root mean square over rollouts."""
    return math.sqrt(sum(v**2 for v in values) / len(values))
