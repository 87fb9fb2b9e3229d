"""Assume the cost of a rehearsal (a trial run of a study): its cells take seconds each, and measuring would take as
long."""

from __future__ import annotations

from dataclasses import dataclass

from bench.plan import preflight
from bench.plan.cost_model import RemainingCost, RemainingWork, StudyCost
from bench.study.options import Machine, Pricing

SECONDS = 10.0  # assumed seconds of a cell, until the first has ended


def of(machine: Machine, pricing: Pricing, *, device: str, reason: str) -> Unmeasured:
    """Return the cost model of a rehearsal. `device`, `reason`: as `bench.core.device.find_device` returns them."""
    return Unmeasured(device=device, reason=reason)


@dataclass(frozen=True, kw_only=True)
class Unmeasured:
    """A cost model that measures nothing; `bench.plan.cost_model.CostModel` describes the members."""

    device: str
    reason: str
    hardware: None = None

    def cost(self, left: RemainingWork) -> StudyCost:
        """Return how the cells are spread over this machine, with `SECONDS` as the time of each."""
        workers, threads = preflight.processes(left.machine, left.cells, device=self.device, exclusive=left.exclusive)
        cells = {cell: RemainingCost(seconds=SECONDS) for cell in left.fractions}
        return StudyCost(workers=workers, threads=threads, ranks=left.machine.ranks, cells=cells)


COST_MODEL = of
