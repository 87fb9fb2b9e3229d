"""Compares families at equal compute under other choices of learning rates, and adds this uncertainty to the interval.

If a study's records hold further learning rates of its models (`--sweep lr=…`), the comparison of two families is
repeated with other rates: all models of the first family, of the second, or of both take the lowest, or the highest,
rate that could have been chosen. The interval of the comparison is widened symmetrically until it contains the
intervals of all repetitions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product

from bench.analysis import frontiers
from bench.analysis.comparisons import Gap
from bench.analysis.evidence import Evidence, Series
from bench.analysis.finding import Reason
from bench.analysis.frontiers import Gaps
from bench.analysis.lr_sweep import Sweep, Tried, sweeps
from bench.stats.intervals import Estimate

RATE = "choice of the learning rate"
"""A source of error in addition to those of `bench.stats.intervals`."""
LOWEST, HIGHEST = 0, -1


@dataclass(frozen=True, kw_only=True)
class UnderRates:
    """A comparison of two families at equal compute, and how it depends on the choice of learning rates.

    Attributes:
        gaps: the comparison.
        others: the same comparison with other learning rates; () if no other rates were trained.
    """

    gaps: Gaps
    others: tuple[Gaps, ...] = ()


def possible(sweep: Sweep) -> tuple[Tried, ...]:
    """Return the learning rates that a sweep could have chosen: those in the interval of the best rate or, if there is
    no interval, the chosen rate and its neighbours."""
    rates = [tried for tried in sweep.tried if tried.eligible]
    if sweep.interval is None:
        place = rates.index(sweep.chosen)
        return tuple(rates[max(0, place - 1) : place + 2])
    low, high = sweep.interval
    return tuple(tried for tried in rates if low <= tried.rate <= high or tried is sweep.chosen)


def at_compute(
    evidence: Evidence, series: Sequence[Series], first: str, second: str, measure: str
) -> UnderRates | Reason:
    """Compare the best models of two families at equal compute, as `frontiers.at_compute` does. If other learning rates
    were trained, the intervals include the choice of the rates. Return a `Reason` if the families cannot be compared.

    Args:
        series: the models to choose from.
        first, second: names of the families.
        measure: name of the score.
    """
    gaps = frontiers.at_compute(evidence, series, first, second, measure)
    if isinstance(gaps, Reason) or evidence.swept is None:
        return gaps if isinstance(gaps, Reason) else UnderRates(gaps=gaps)
    others = []
    for choice in product((None, LOWEST, HIGHEST), repeat=2):
        at = dict(zip((first, second), choice, strict=True))
        changed = [_at(evidence, each, at.get(each.family)) for each in series]
        if [each.variant for each in changed] != [each.variant for each in series]:
            other = frontiers.at_compute(evidence.swept, changed, first, second, measure)
            others += [other] if not isinstance(other, Reason) else []
    return UnderRates(gaps=_holding(gaps, others), others=tuple(others))


def _at(evidence: Evidence, series: Series, which: int | None) -> Series:
    """Return the series of the same model at its lowest or highest possible learning rate; the series itself if no
    other rate was trained.

    Args:
        which: `LOWEST` or `HIGHEST`; None returns the series itself.
    """
    if which is None or evidence.swept is None:
        return series
    cells = evidence.swept.cells
    mine = set(cells.get(series.variant, ()))
    for sweep in sweeps(evidence):
        if any(mine & set(tried.cells) for tried in sweep.tried):
            names = set(possible(sweep)[which].cells)
            return next((s for s in evidence.swept.series if names & set(cells.get(s.variant, ()))), series)
    return series


def _holding(gaps: Gaps, others: Sequence[Gaps]) -> Gaps:
    """Widen the intervals of `gaps`, at every x and of their mean, until they contain the intervals of the comparisons
    `others` with other learning rates."""
    if not others:
        return gaps
    mean = _wider(gaps.mean, [other.mean for other in others])
    return replace(gaps, mean=mean, gaps=tuple(_gap(gap, others) for gap in gaps.gaps))


def _gap(gap: Gap, others: Sequence[Gaps]) -> Gap:
    there = [g.estimate for other in others for g in other.gaps if math.isclose(g.x, gap.x, rel_tol=1e-6)]
    return replace(gap, estimate=_wider(gap.estimate, there))


def _wider(e: Estimate, others: Sequence[Estimate]) -> Estimate:
    half = max((abs(other.value - e.value) + other.half for other in others), default=0.0)
    if half <= e.half:
        return e
    return replace(e, margins={**e.margins, RATE: math.sqrt(half**2 - e.half**2)})
