"""What a study cost: seconds by purpose, floating-point operations, core-days."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from bench.core.formatting import core_days, count, duration, flops, plural
from bench.core.record import Record

PARTS = ("train", "evaluate", "save", "wait")


@dataclass(frozen=True, kw_only=True)
class Spent:
    """Sums over cells, repeated work included once. Seconds are added over cells, whether or not they ran at once.

    `spent_images` counts what `spent_flops` does: every image that a step was taken on, of the trunk and all branches.
    """

    cells: int
    seconds: Mapping[str, float]
    total_seconds: float
    spent_flops: float
    core_days: float
    spent_images: int

    @property
    def sentence(self) -> str:
        if not self.cells:
            return "No finished cells."
        parts = ", ".join(f"{part} {duration(value)}" for part, value in self.seconds.items() if value > 0)
        took = f"{duration(self.total_seconds)} summed over workers" + (f" ({parts})" if parts else "")
        trained = f", {flops(self.spent_flops)} of training over {count(self.spent_images)} images"
        trained = trained if self.spent_images else ""
        return f"{plural(self.cells, 'cell')} took {took}{trained} and {core_days(self.core_days)} core-days."


def spent(records: Iterable[Record]) -> Spent:
    """Add up the cost of records of every status."""
    costs = [record.cost for record in records]
    return Spent(
        cells=len(costs),
        seconds={part: math.fsum(getattr(cost.seconds, part) or 0.0 for cost in costs) for part in PARTS},
        total_seconds=math.fsum(cost.seconds.total or 0.0 for cost in costs),
        spent_flops=math.fsum(cost.spent_flops.paper or 0.0 for cost in costs),
        core_days=math.fsum(cost.core_days or 0.0 for cost in costs),
        spent_images=sum(cost.spent_images or 0 for cost in costs),
    )
