"""Chooses each model's learning rate from a sweep, by pre-training ("upstream") accuracy only.

The best rate is the maximum of a smooth curve through all single runs near it: log-odds of accuracy over the logarithm
of the rate (`bench.stats.peak`). It has an interval. If it lies at or beyond an end of the sweep, no rate is chosen,
and the sweep has to be extended. A rate at which any run diverged is not chosen. Scores on target sets, which are
reported, are not used, because the choice would bias them. Pre-training accuracy is measured on a part of the training
images that cells hold out (`Cell.held_out`), or else on the test images of the pre-training set. In the latter case it
is biased by the choice, and so are reported scores on these test images; a validity check warns of this.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

from scipy import special

from bench.analysis import evidence as evidence_module
from bench.analysis.evidence import UPSTREAM, Evidence, family_rank
from bench.analysis.finding import Item
from bench.analysis.study_data import Records, variant_of
from bench.core.by_key import by_key
from bench.stats import peak as peaks
from bench.stats.intervals import POINT_LEVEL, Estimate, inside
from bench.stats.peak import Peak
from bench.study.ladder import place_of
from bench.study.record import Record


@dataclass(frozen=True, kw_only=True)
class Tried:
    """One learning rate of a sweep.

    Attributes:
        rate: the learning rate.
        accuracy: pre-training accuracy; None if no run finished.
        diverged: number of runs whose loss stopped being finite.
        cells: directories of all runs at this rate.
        seeds: seeds of the runs that finished.
        values: accuracy of each of these seeds.
    """

    rate: float
    accuracy: Estimate | None
    diverged: int = 0
    cells: tuple[str, ...] = ()
    seeds: tuple[int, ...] = ()
    values: tuple[float, ...] = ()

    @property
    def eligible(self) -> bool:
        return self.accuracy is not None and not self.diverged


@dataclass(frozen=True, kw_only=True)
class Sweep(Item):
    """One model trained at several learning rates, evaluated at one budget.

    Attributes:
        model, family: names of the model and of its family.
        data: name of the pre-training set.
        num_images: number of images of the subset of `data` that was used; None: all of it.
        images_seen: the budget, in images.
        tried: the learning rates, ascending; at least two.
        held_out: whether accuracy is on images that were held out from the training images.
        shorter: the same sweep at the shortest budget; None unless all rates were evaluated at several budgets.
    """

    model: str
    family: str
    data: str
    num_images: int | None
    images_seen: int
    tried: tuple[Tried, ...]
    held_out: bool = False
    shorter: Sweep | None = None

    @cached_property
    def best(self) -> Tried:
        """The tried rate with the highest mean accuracy; of equally good rates, the lowest."""
        return max((t for t in self.tried if t.eligible), key=_accuracy)

    @cached_property
    def peak(self) -> Peak | None:
        """The maximum of the curve of accuracy (as log-odds) over log2 of the rate, through the runs near the best
        rate; None if the curve has no maximum."""
        near = [self.tried[number] for number in peaks.near_peak([self._height(t) for t in self.tried])]
        if len({t.rate for t in near}) < peaks.MIN_PLACES:
            return None
        found = peaks.peak(*_readings(near), level=POINT_LEVEL)
        if found is None or math.isnan(found.low):
            return found
        return peaks.cut(found, peaks.between(*_readings([t for t in self.tried if t.eligible]), level=POINT_LEVEL))

    def _height(self, tried: Tried) -> float:
        """Return the mean log-odds of accuracy at a tried rate; NaN if a run diverged or none finished."""
        if not tried.eligible or not tried.values:
            return math.nan
        return math.fsum(_log_odds(tried, value) for value in tried.values) / len(tried.values)

    @cached_property
    def edge(self) -> str | None:
        """The end of the sweep, "lowest" or "highest", at or beyond which the best rate lies, so that none is chosen;
        None if it lies inside."""
        first, last = self.tried[0], self.tried[-1]
        place = math.log2(self.best.rate) if self.peak is None else self.peak.place
        if self.best is first or (first.eligible and place < math.log2(first.rate)):
            return "lowest"
        return "highest" if self.best is last or (last.eligible and place > math.log2(last.rate)) else None

    @cached_property
    def optimum(self) -> float | None:
        """The best rate, at the maximum of the curve; None if it is at or beyond an end of the sweep. If the curve has
        no maximum, or has it beyond a rate at which a run diverged, it is the rate with the highest accuracy among
        those tried."""
        if self.edge is not None:
            return None
        if self.peak is None:
            return self.best.rate
        found, low, high = 2.0**self.peak.place, *sorted((2.0**self.peak.place, self.best.rate))
        above = next(t for t in self.tried if t.rate > self.best.rate)
        diverged = any(low <= t.rate <= high and not t.eligible for t in self.tried)
        return self.best.rate if diverged or (found > self.best.rate and not above.eligible) else found

    @property
    def interval(self) -> tuple[float, float] | None:
        """The interval (low, high) of the best rate, cut at the ends of the sweep; None if the noise or the best rate
        is unknown."""
        if self.optimum is None or self.peak is None or math.isnan(self.peak.low):
            return None
        low, high = (2.0 ** min(max(end, -99.0), 99.0) for end in (self.peak.low, self.peak.high))
        lowest, highest = self.tried[0].rate, self.tried[-1].rate
        return max(min(low, self.optimum), lowest), min(max(high, self.optimum), highest)

    @property
    def is_open(self) -> bool:
        """Whether the interval of the best rate reaches an end of the sweep, or is unknown."""
        ends = self.interval
        return ends is None or ends[0] <= self.tried[0].rate or ends[1] >= self.tried[-1].rate

    @property
    def rate(self) -> float | None:
        """The learning rate to train with: the best rate, rounded to two digits; None if it is at or beyond an end of
        the sweep."""
        return None if self.optimum is None else float(f"{self.optimum:.2g}")

    @cached_property
    def chosen(self) -> Tried:
        """The tried rate whose runs represent the model: the rate nearest to the best rate (`optimum`); if that is at
        or beyond an end of the sweep, the tried rate with the highest accuracy."""
        if self.optimum is None:
            return self.best
        wanted = math.log(self.optimum)
        return min((t for t in self.tried if t.eligible), key=lambda t: (abs(math.log(t.rate) - wanted), t.rate))

    def lost_at(self, factor: float) -> float | None:
        """Return the accuracy that training at `factor` times the best rate loses, by the curve; None if there is no
        curve, or if this rate is outside the sweep."""
        if self.optimum is None or self.peak is None:
            return None
        at = math.log2(self.optimum * factor)
        if not math.log2(self.tried[0].rate) <= at <= math.log2(self.tried[-1].rate):
            return None
        return float(special.expit(self.peak.top) - special.expit(self.peak.at(at)))

    @property
    def ratio_to_shorter(self) -> tuple[float, float, float] | None:
        """The best rate divided by the best rate at the shortest budget: (ratio, and the ends of its interval). None if
        one of the two is unknown."""
        if self.shorter is None or self.peak is None or self.shorter.peak is None:
            return None
        if self.optimum is None or self.shorter.optimum is None:
            return None
        value, low, high = (2.0 ** min(max(v, -99.0), 99.0) for v in peaks.ratio(self.peak, self.shorter.peak))
        return value, low, high

    @property
    def further(self) -> tuple[float, ...]:
        """The next two learning rates to try, beyond the end of the sweep at which the best rate lies; their spacing is
        that of the two tried rates at this end. () if the best rate is not at an end."""
        if self.edge is None:
            return ()
        rates = [t.rate for t in self.tried]
        end, neighbour = (rates[0], rates[1]) if self.edge == "lowest" else (rates[-1], rates[-2])
        return tuple(sorted(end * (end / neighbour) ** step for step in (1, 2)))

    @property
    def upstream(self) -> str:
        """The pre-training set: the data set's name and, if not all images were used, their number: "mnist@1000"."""
        return self.data if self.num_images is None else f"{self.data}@{self.num_images}"


@lru_cache(maxsize=4)
def sweeps(evidence: Evidence) -> tuple[Sweep, ...]:
    """Return a sweep for every model that was trained at two or more learning rates and finished at one of them, sorted
    by family and model. For a ladder, return (): it tunes rates for every change and budget separately."""
    if any(place_of(record.cell.axes) for record in evidence.records.records):
        return ()
    if evidence.swept is not None:
        return sweeps(evidence.swept)
    swept = [sweep for group in _groups(evidence.records.records) if (sweep := _sweep(evidence, group)) is not None]
    order = {s.last.model: number for number, s in enumerate(evidence.series)}
    swept.sort(key=lambda s: (family_rank(s.family), order.get(s.model, 0), s.data, s.num_images or math.inf))
    return tuple(swept)


def of_chosen(records: Records, **about: Any) -> Evidence:
    """Return the evidence of a study's records, keeping of each learning-rate sweep only the runs at the chosen rate.
    It is for comparisons, figures and plans.

    Args:
        about: arguments of `bench.analysis.evidence.build`.
    """
    return without_rejected(evidence_module.build(records, **about))


def without_rejected(evidence: Evidence) -> Evidence:
    """Return the evidence without the runs at learning rates that a sweep did not choose. If there was a sweep, `swept`
    of the result is the given evidence."""
    others = rejected(evidence)
    return evidence.without(others) if others else evidence


def rejected(evidence: Evidence) -> frozenset[str]:
    """Return the directories of the runs whose learning rate a sweep tried but did not choose to represent the
    model."""
    swept = sweeps(evidence)
    return frozenset(name for s in swept for t in s.tried if t is not _used(evidence, s) for name in t.cells)


def _used(evidence: Evidence, sweep: Sweep) -> Tried:
    """Return the tried rate whose runs represent the model outside the sweep: the only one that is among the cells
    planned last, or, if several or none are, the chosen one."""
    wanted = evidence.records.wanted
    names = frozenset(wanted.names) if wanted else frozenset()
    current = [t for t in sweep.tried if t.accuracy is not None and not names.isdisjoint(t.cells)]
    return current[0] if len(current) == 1 else sweep.chosen


def judged_on(swept: Sequence[Sweep]) -> str:
    """Return words for the images on which the accuracies of sweeps were measured."""
    if all(s.held_out for s in swept):
        return "a part of the training images that was held out"
    return "the upstream test images, so that the accuracy of a chosen rate is slightly optimistic"


# -- from records ------------------------------------------------------------------------------------------------------


def _groups(records: Iterable[Record]) -> list[list[Record]]:
    """Return the groups of records that differ only in learning rate and seed; groups with a single rate are left
    out."""
    done = [record for record in records if record.status in ("complete", "diverged")]
    by_model = by_key(((record.cell.model, record.cell.data), record) for record in done)
    swept = [group for group in by_model.values() if _several_rates(group)]  # saves time: hashes below are slow
    alike = by_key((variant_of(record, but_for=["lr"]), record) for group in swept for record in group)
    return [group for group in alike.values() if _several_rates(group)]


def _several_rates(group: Sequence[Record]) -> bool:
    return len({record.cell.recipe.lr for record in group}) > 1


def _sweep(evidence: Evidence, group: Sequence[Record]) -> Sweep | None:
    finished = [record for record in group if record.status == "complete"]
    seen = [{h.images_seen for h in record.horizons if h.images_seen} for record in finished]
    shared = set.intersection(*seen) if seen else set()
    if not shared and seen:  # successive halving: some rates were stopped before the longest budget
        most = max(set.union(*seen), default=0)
        shared = {most} if sum(most in horizons for horizons in seen) > 1 else set()
    if not shared:
        return None
    made = [sweep for seen in {min(shared), max(shared)} if (sweep := _at(evidence, group, seen)) is not None]
    made.sort(key=lambda sweep: sweep.images_seen)
    if not made or made[-1].images_seen != max(shared):
        return None
    return replace(made[-1], shorter=made[0]) if len(made) > 1 else made[0]


def _at(evidence: Evidence, group: Sequence[Record], seen: int) -> Sweep | None:
    """Return the sweep of a group of records, which differ in learning rate and seed, at the budget `seen` (in images);
    None if at every rate a run diverged or none finished."""
    finished = [record for record in group if record.status == "complete"]
    estimates = evidence.estimates(UPSTREAM)
    keys = {record.cell.recipe.lr: (variant_of(record), seen) for record in finished}
    tried = []
    for rate in sorted({record.cell.recipe.lr for record in group}):
        mine = [record for record in group if record.cell.recipe.lr == rate]
        diverged = sum(record.status == "diverged" for record in mine)
        key = keys.get(rate)
        point = evidence.points.get(key) if key else None
        read = evidence.samples(point, UPSTREAM) if point else None
        tried.append(
            Tried(
                rate=rate,
                accuracy=estimates.get(key) if key else None,
                diverged=diverged,
                cells=tuple(record.directory for record in mine),
                seeds=read.seeds if read else (),
                values=tuple(map(float, read.values_SD.mean(axis=1))) if read else (),
            )
        )
    if not any(t.eligible for t in tried):
        return None
    cell = finished[0].cell
    return Sweep(
        model=cell.model,
        family=finished[0].model.family,
        data=cell.data,
        num_images=cell.num_images,
        images_seen=seen,
        tried=tuple(tried),
        held_out=cell.held_out,
    )


def _readings(tried: Sequence[Tried]) -> tuple[list[float], list[float], list[int]]:
    """Return three lists with an entry for every run at the learning rates `tried`: log2 of the rate, log-odds of
    accuracy, and seed."""
    runs = [(t, seed, value) for t in tried for seed, value in zip(t.seeds, t.values, strict=True)]
    return (
        [math.log2(t.rate) for t, _, _ in runs],
        [_log_odds(t, value) for t, _, value in runs],
        [seed for _, seed, _ in runs],
    )


def _log_odds(tried: Tried, accuracy: float) -> float:
    """Return the log-odds of one run's accuracy, whose spread between seeds hardly depends on the accuracy. `tried`:
    the learning rate of the run; its number of test images keeps the log-odds finite."""
    assert tried.accuracy is not None
    return float(special.logit(inside(accuracy, tried.accuracy.num_test)))


def _accuracy(tried: Tried) -> float:
    assert tried.accuracy is not None
    return tried.accuracy.value
