"""Verdicts at other levels than an interval was stated at, and of several questions together."""

from __future__ import annotations

import math
from collections.abc import Sequence

from bench.stats.intervals import DRAWS, IMAGES, SEEDS, Estimate, t_quantile

STEPS = 40  # of bisection, over log p
LEAST_P = 1e-9


def p_value(e: Estimate, *, beside: float = 0.0) -> float:
    """1 - the level at which the interval of a difference just reaches 0: by inversion of the interval as it is made,
    each source of chance with its own quantile.

    Args:
        beside: a margin that depends on no level and adds in quadrature.
    """
    if not e.value:
        return 1.0
    least, most = math.log(LEAST_P), 0.0
    for _ in range(STEPS):
        middle = (least + most) / 2
        if math.hypot(_half(e, 1 - math.exp(middle)), beside) < abs(e.value):
            most = middle
        else:
            least = middle
    return math.exp(most)


def _half(e: Estimate, level: float) -> float:
    """Half the width of the interval at another level. Margins that no quantile made stay as they are."""
    df = {SEEDS: e.seed_df, DRAWS: e.num_draws - 1.0, IMAGES: e.image_df}
    return math.hypot(
        *(
            margin * (t_quantile(df[source], level) / t_quantile(df[source], e.level) if df.get(source) else 1.0)
            for source, margin in e.margins.items()
        )
    )


def holm(p: Sequence[float], *, share: float, weights: Sequence[float] | None = None) -> list[bool]:
    """Which of several hypotheses fall, so that the chance that any true one does is at most `share`, however they
    depend on each other (Holm 1979; there too with weights, fixed beforehand: a hypothesis of more weight falls more
    easily, the others less so).

    Args:
        weights: positive, one for each; None: equal.
    """
    weights = [1.0] * len(p) if weights is None else weights
    falls, left = [False] * len(p), math.fsum(weights)
    for place in sorted(range(len(p)), key=lambda n: p[n] / weights[n]):
        if p[place] * left > share * weights[place]:
            break
        falls[place] = True
        left -= weights[place]
    return falls
