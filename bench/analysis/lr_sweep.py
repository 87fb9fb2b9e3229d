"""Choice of each model's learning rate from a sweep, by accuracy on the upstream test images alone.

The rule: the lowest rate within two points of the best, since higher ones vary more between seeds. A rate at which any
run diverged is not chosen. Downstream scores, which are reported, are not used: the choice would bias them. Upstream
accuracy is biased by it, and so are downstream scores on the upstream set, which is a validity check.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

from bench.analysis import evidence as evidence_module
from bench.analysis.evidence import UPSTREAM, Evidence, family_rank
from bench.analysis.finding import Item
from bench.analysis.study_data import Records, variant_of
from bench.core.by_key import by_key
from bench.core.record import Record
from bench.core.spec import is_rate_enough
from bench.stats.intervals import Estimate


@dataclass(frozen=True, kw_only=True)
class Tried:
    """One rate. `accuracy` is None where no run finished; `diverged` counts runs whose loss stopped being finite.

    `cells` names every run at this rate by its directory.
    """

    rate: float
    accuracy: Estimate | None
    diverged: int = 0
    cells: tuple[str, ...] = ()

    @property
    def eligible(self) -> bool:
        return self.accuracy is not None and not self.diverged


@dataclass(frozen=True, kw_only=True)
class Sweep(Item):
    """One model trained at several rates, evaluated after `images_seen` images: the longest budget of every rate.

    `tried` is ascending and holds at least two rates.
    """

    model: str
    family: str
    data: str
    num_images: int | None
    images_seen: int
    tried: tuple[Tried, ...]

    @cached_property
    def best(self) -> Tried:
        """The highest accuracy; the lowest rate of equal ones."""
        return max((t for t in self.tried if t.eligible), key=_accuracy)

    @cached_property
    def chosen(self) -> Tried:
        """The lowest rate within `RATE_MARGIN` of the best."""
        best = _accuracy(self.best)
        return next(t for t in self.tried if t.eligible and is_rate_enough(lacks=best - _accuracy(t)))

    @property
    def edge(self) -> str | None:
        """ "lowest" or "highest" where the best is the end of the sweep: beyond it may lie a better one."""
        ends = {self.tried[0].rate: "lowest", self.tried[-1].rate: "highest"}
        return ends.get(self.best.rate)

    @property
    def further(self) -> tuple[float, ...]:
        """The two rates that go on past the edge, in steps as wide as the sweep's last; () without an edge."""
        if self.edge is None:
            return ()
        rates = [t.rate for t in self.tried]
        end, neighbour = (rates[0], rates[1]) if self.edge == "lowest" else (rates[-1], rates[-2])
        return tuple(sorted(end * (end / neighbour) ** step for step in (1, 2)))

    @property
    def upstream(self) -> str:
        """The data set, and how many of its images where not all were used."""
        return self.data if self.num_images is None else f"{self.data}@{self.num_images}"


@lru_cache(maxsize=4)
def sweeps(evidence: Evidence) -> tuple[Sweep, ...]:
    """Every model that was tried at two or more rates and finished at one of them; families and models in order."""
    if evidence.swept is not None:
        return sweeps(evidence.swept)
    swept = [sweep for group in _groups(evidence.records.records) if (sweep := _sweep(evidence, group)) is not None]
    order = {s.last.model: number for number, s in enumerate(evidence.series)}
    swept.sort(key=lambda s: (family_rank(s.family), order.get(s.model, 0), s.data, s.num_images or math.inf))
    return tuple(swept)


def of_chosen(records: Records, **about: Any) -> Evidence:
    """Evidence of a study's records at the learning rates that its sweeps chose: comparisons, figures and plans use it.
    `about` as `bench.analysis.evidence.build` takes it."""
    return without_rejected(evidence_module.build(records, **about))


def without_rejected(evidence: Evidence) -> Evidence:
    """Evidence without the runs at rejected rates; `swept` of it is the whole, where a sweep was made."""
    others = rejected(evidence)
    return evidence.without(others) if others else evidence


def rejected(evidence: Evidence) -> frozenset[str]:
    """Directories of the runs of a sweep at other rates than the one used elsewhere (`_used`)."""
    swept = sweeps(evidence)
    return frozenset(name for s in swept for t in s.tried if t is not _used(evidence, s) for name in t.cells)


def _used(evidence: Evidence, sweep: Sweep) -> Tried:
    """The rate whose runs represent the model outside the sweep: the only one in the current grid, else the chosen."""
    wanted = evidence.records.wanted
    names = frozenset(wanted.names) if wanted else frozenset()
    current = [t for t in sweep.tried if t.accuracy is not None and not names.isdisjoint(t.cells)]
    return current[0] if len(current) == 1 else sweep.chosen


# -- from records ------------------------------------------------------------------------------------------------------


def _groups(records: Iterable[Record]) -> list[list[Record]]:
    """Records that differ in rate and seed alone, where there are several rates."""
    done = [record for record in records if record.status in ("complete", "diverged")]
    by_model = by_key(((record.cell.model, record.cell.data), record) for record in done)
    swept = [group for group in by_model.values() if _several_rates(group)]  # a hash costs more than a look
    alike = by_key((variant_of(record, but_for=["lr"]), record) for group in swept for record in group)
    return [group for group in alike.values() if _several_rates(group)]


def _several_rates(group: Sequence[Record]) -> bool:
    return len({record.cell.recipe.lr for record in group}) > 1


def _sweep(evidence: Evidence, group: Sequence[Record]) -> Sweep | None:
    finished = [record for record in group if record.status == "complete"]
    seen = [{h.images_seen for h in record.horizons if h.images_seen} for record in finished]
    shared = set.intersection(*seen) if seen else set()
    if not shared and seen:  # halved: some rates were stopped before the longest budget
        most = max(set.union(*seen), default=0)
        shared = {most} if sum(most in horizons for horizons in seen) > 1 else set()
    if not shared:
        return None
    last, estimates = max(shared), evidence.estimates(UPSTREAM)
    accuracy = {record.cell.recipe.lr: estimates.get((variant_of(record), last)) for record in finished}
    tried = []
    for rate in sorted({record.cell.recipe.lr for record in group}):
        mine = [record for record in group if record.cell.recipe.lr == rate]
        diverged = sum(record.status == "diverged" for record in mine)
        tried.append(
            Tried(
                rate=rate,
                accuracy=accuracy.get(rate),
                diverged=diverged,
                cells=tuple(record.directory for record in mine),
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
        images_seen=last,
        tried=tuple(tried),
    )


def _accuracy(tried: Tried) -> float:
    assert tried.accuracy is not None
    return tried.accuracy.value
