"""P-values from confidence intervals, and Holm's correction for several hypotheses tested together."""

from __future__ import annotations

import math
from collections.abc import Sequence

from bench.stats.intervals import DRAWS, IMAGES, SEEDS, Estimate, t_quantile

STEPS = 40  # bisection steps over log p
LEAST_P = 1e-9  # smallest p-value returned


def p_value(e: Estimate, *, beside: float = 0.0) -> float:
    """Return the p-value of a difference `e`: 1 - the confidence level at which its interval just reaches 0.

    The level is found by bisection. At each level, the margin of each source of chance (seeds, draws, test images) is
    rescaled with that source's own quantile.

    Args:
        beside: a further margin, the same at every level, which is added in quadrature.
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
    """Return the half-width of the interval of `e` at another confidence level. A margin whose degrees of freedom are
    unknown stays as it is."""
    df = {SEEDS: e.seed_df, DRAWS: e.num_draws - 1.0, IMAGES: e.image_df}
    return math.hypot(
        *(
            margin * (t_quantile(df[source], level) / t_quantile(df[source], e.level) if df.get(source) else 1.0)
            for source, margin in e.margins.items()
        )
    )


def holm(p: Sequence[float], *, share: float, weights: Sequence[float] | None = None) -> list[bool]:
    """Return which of several null hypotheses are rejected by Holm's procedure (Holm 1979).

    Args:
        p: the p-value of each hypothesis.
        share: upper limit of the probability that any true hypothesis is rejected, however the tests depend on each
            other.
        weights: a positive weight for each hypothesis, fixed beforehand (also in Holm 1979): a larger weight makes a
            hypothesis easier to reject and the others harder. None: equal weights.
    """
    weights = [1.0] * len(p) if weights is None else weights
    falls, left = [False] * len(p), math.fsum(weights)
    for place in sorted(range(len(p)), key=lambda n: p[n] / weights[n]):
        if p[place] * left > share * weights[place]:
            break
        falls[place] = True
        left -= weights[place]
    return falls
