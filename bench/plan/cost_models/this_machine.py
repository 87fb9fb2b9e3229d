"""Estimate the cost of a study on this machine, from a few seconds of the real training step."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bench.core import environment
from bench.core.device import sharing
from bench.core.subprocesses import free_memory_of
from bench.plan import estimate, feed, preflight, resources
from bench.plan.cost_model import (
    ACCELERATOR_FLOPS,
    NOTHING_MEASURED,
    RemainingCost,
    RemainingWork,
    StudyCost,
    remaining_cost,
)
from bench.plan.estimate import Calibration
from bench.plan.resources import Needs
from bench.study.cell import Cell
from bench.study.options import Machine, Pricing

if TYPE_CHECKING:
    from bench.plan.price import Price


def of(machine: Machine, pricing: Pricing, *, device: str, reason: str) -> ThisMachine:
    """Return the cost model of this machine. `device`, `reason`: as `bench.core.device.find_device` returns them."""
    return ThisMachine(device=device, reason=reason)


@dataclass(frozen=True, kw_only=True)
class ThisMachine:
    """The cost model of this machine, which measures; `bench.plan.cost_model.CostModel` describes the members."""

    device: str
    reason: str
    hardware: None = None

    def cost(self, left: RemainingWork) -> StudyCost:
        """Return the cost of the work that is left, and how it is spread over this machine."""
        machine = left.machine
        workers, threads = preflight.processes(machine, left.cells, device=self.device, exclusive=left.exclusive)
        calibration, needs = NOTHING_MEASURED, dict[Cell, Needs]()
        if left.training:
            calibration = estimate.calibrate(
                left.training,
                left.sizes,
                device=self.device,
                threads=threads,
                processes=workers * machine.ranks,
                anew=left.pricing.calibrate,
                report=left.report,
            )
            needs = self._needs(left, calibration, workers=workers)
        busy = environment.cores() / (workers * machine.ranks * threads) if self.device == "cpu" else 1.0
        cells = {
            cell: remaining_cost(
                cell,
                calibration,
                left.sizes,
                device=self.device,
                ranks=machine.ranks,
                fraction=fraction,
                needs=needs.get(cell),
                own=min(1.0, busy),
            )
            for cell, fraction in left.fractions.items()
        }
        return StudyCost(
            workers=workers,
            threads=threads,
            ranks=machine.ranks,
            cells=cells,
            calibration=calibration,
            elsewhere=_on_an_accelerator(left, cells, calibration),
        )

    def _needs(self, left: RemainingWork, calibration: Calibration, *, workers: int) -> dict[Cell, Needs]:
        """Return cell -> the memory and disk that it needs, for the cells that train and whose throughput is known.
        `workers`: cells that run at the same time and share the machine's memory and cores."""
        rated, memory = estimate.rated(left.training, calibration, left.sizes), free_memory_of(self.device)
        memory //= sharing(self.device, workers * left.machine.ranks)
        if left.to_run:
            resources.check_memory(rated, memory, device=self.device, ranks=left.machine.ranks)
        trained = [(cell, rates) for cell, rates in rated if cell.horizons != (0,)]
        decoded = feed.per_core([cell for cell, _ in trained], left.sizes, device=self.device)
        cores = environment.cores() / (workers * left.machine.ranks)
        return {
            cell: resources.needs(
                cell,
                rates,
                left.sizes,
                device=self.device,
                memory=memory,
                decoded_per_second=cores * decoded.get(cell, 0.0),
                ranks=left.machine.ranks,
            )
            for cell, rates in trained
        }


def _on_an_accelerator(left: RemainingWork, cells: dict[Cell, RemainingCost], calibration: Calibration) -> Price | None:
    """Return the price of the work that is left on one accelerator, for a study that is large, not of scale `cpu`, or
    planned with the name of an accelerator; None for other studies, and if nothing is left to train."""
    accelerator = left.pricing.accelerator
    flops = math.fsum(cost.flops["dense"] for cost in cells.values() if cost.flops)
    asked = accelerator is not None or left.scale != "cpu" or flops > ACCELERATOR_FLOPS
    if not asked or not left.training or not calibration.rates:
        return None
    from bench.plan.cost_models import named_hardware

    trained: Sequence[Cell] = [cell for cell in left.training if cells[cell].refused is None]
    return named_hardware.on_one(accelerator or "H100", trained, left, calibration)


COST_MODEL = of
