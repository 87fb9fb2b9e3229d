"""What a study cost: seconds by purpose, floating-point operations, core-days."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from bench.analysis.words import core_days, count, duration, flops, plural

PARTS = ("train", "evaluate", "save", "wait")


@dataclass(frozen=True, kw_only=True)
class Spent:
    """Sums over cells, repeated work included once. Seconds are added over cells, whether or not they ran at once."""

    cells: int
    seconds: Mapping[str, float]
    total_seconds: float
    spent_flops: float
    core_days: float
    images_seen: int

    @property
    def sentence(self) -> str:
        if not self.cells:
            return "No finished cells."
        parts = ", ".join(f"{part} {duration(value)}" for part, value in self.seconds.items() if value > 0)
        took = f"{duration(self.total_seconds)} ({parts})" if parts else duration(self.total_seconds)
        return (
            f"{plural(self.cells, 'cell')} took {took}, {flops(self.spent_flops)} of "
            f"training over {count(self.images_seen)} images and {core_days(self.core_days)} core-days."
        )


def spent(records: Iterable[Mapping[str, Any]]) -> Spent:
    """Add up the cost of records of every status."""
    found = list(records)
    costs = [record["cost"] for record in found]
    seconds = [cost.get("seconds") or {} for cost in costs]
    return Spent(
        cells=len(found),
        seconds={part: math.fsum(s.get(part) or 0.0 for s in seconds) for part in PARTS},
        total_seconds=math.fsum(s.get("total") or sum(s.get(part) or 0.0 for part in PARTS) for s in seconds),
        spent_flops=math.fsum((cost.get("spent_flops") or {}).get("paper") or 0.0 for cost in costs),
        core_days=math.fsum(cost.get("core_days") or 0.0 for cost in costs),
        images_seen=sum(max((h["images_seen"] for h in record["horizons"]), default=0) for record in found),
    )
