"""Can a learning rate be had from smaller models of the family? A rule, tested on sizes that it has not seen.

The rule: the logarithm of the chosen rate is linear in that of forward MACs per image, fitted to the smaller sizes by
least squares, and rounded to the nearest rate of the sweep. Each size with two or more smaller ones is held out in
turn. The rule is right there if its rate could have been chosen (`is_enough`). It is offered only where it is right on
every size held out, and so many hits are unlikely by chance: rates drawn at random from those that were tried.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import linear_regression

from bench.analysis.evidence import Evidence
from bench.analysis.lr_sweep import Sweep, sweeps
from bench.core.spec import Recipe, is_rate_enough

LEVEL = 0.05  # of the p-value up to which the rule is offered
FITTED = 2  # sizes at least


@dataclass(frozen=True, kw_only=True)
class HeldOut:
    """One size, predicted from the smaller ones.

    Attributes:
        fitted: smaller sizes. predicted, chosen: rates. lacks: accuracy at the predicted rate below the best; None
            where it was not tried or diverged. chance: share of the tried rates that are right.
    """

    model: str
    macs: float
    fitted: int
    predicted: float
    chosen: float
    lacks: float | None
    chance: float

    @property
    def right(self) -> bool:
        return self.lacks is not None and is_rate_enough(lacks=self.lacks)


@dataclass(frozen=True, kw_only=True)
class RateRule:
    """rate = `scale` × MACs ** `exponent`, fitted to all `sizes` of a family; how it did on those held out."""

    family: str
    upstream: str
    sizes: int
    scale: float
    exponent: float
    held_out: tuple[HeldOut, ...]

    @property
    def p_value(self) -> float:
        """Probability that rates drawn at random would have been right on every size held out."""
        return math.prod(each.chance for each in self.held_out)

    @property
    def offered(self) -> bool:
        return all(each.right for each in self.held_out) and self.p_value <= LEVEL


def rules(evidence: Evidence) -> tuple[RateRule, ...]:
    """One for each family of which three sizes or more were swept alike: on the same images, with the same recipe."""
    records = {record.directory: record for record in (evidence.swept or evidence).records.records}
    alike: dict[tuple[str, str, int, Recipe], dict[float, Sweep]] = {}
    for sweep in sweeps(evidence):
        record = records[sweep.tried[0].cells[0]]
        if (macs := record.model.forward_macs.dense) and sum(t.eligible for t in sweep.tried) > 1:
            key = sweep.family, sweep.upstream, sweep.images_seen, replace(record.cell.recipe, lr=0.0)
            alike.setdefault(key, {})[float(macs)] = sweep
    return tuple(_rule(found) for found in alike.values() if len(found) > FITTED)


def _rule(found: dict[float, Sweep]) -> RateRule:
    sizes = sorted(found.items())
    chosen = [(macs, sweep.chosen.rate) for macs, sweep in sizes]
    held_out = []
    for number, (macs, sweep) in enumerate(sizes[FITTED:], FITTED):
        scale, exponent = _fit(chosen[:number])
        wanted = math.log(scale * macs**exponent)
        nearest = min(sweep.tried, key=lambda tried: (abs(math.log(tried.rate) - wanted), tried.rate))
        assert sweep.best.accuracy is not None
        best = sweep.best.accuracy.value
        lacks = {t.rate: best - t.accuracy.value for t in sweep.tried if t.eligible and t.accuracy is not None}
        held_out.append(
            HeldOut(
                model=sweep.model,
                macs=macs,
                fitted=number,
                predicted=nearest.rate,
                chosen=sweep.chosen.rate,
                lacks=lacks.get(nearest.rate),
                chance=sum(is_rate_enough(lacks=value) for value in lacks.values()) / len(sweep.tried),
            )
        )
    scale, exponent = _fit(chosen)
    some = sizes[0][1]
    return RateRule(
        family=some.family,
        upstream=some.upstream,
        sizes=len(sizes),
        scale=scale,
        exponent=exponent,
        held_out=tuple(held_out),
    )


def _fit(points: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """(scale, exponent) of rate = scale × MACs ** exponent, by least squares of logarithms."""
    line = linear_regression([math.log(macs) for macs, _ in points], [math.log(rate) for _, rate in points])
    return math.exp(line.intercept), line.slope
