"""Estimate the cost of a study on devices that are not those of this machine: --hardware 8xH100 --price 2.5/gpuh.

A model's throughput comes from the first of these that there is: records of the same model on such a device, below
--results; the roofline (an upper limit from FLOPs and bytes, bench/cost/roofline.py) times the fraction of it that
other models reach in such records; the roofline times the fraction that others published. Every throughput carries its
error, one standard deviation of its logarithm.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from bench.core import environment
from bench.core.errors import UserError
from bench.core.formatting import duration, significant
from bench.cost import roofline
from bench.cost.hardware import Hardware, parse
from bench.cost.peaks import Accelerator, accelerator, accelerator_of
from bench.plan import counted, estimate, feed, preflight, price, resources
from bench.plan.cost_model import (
    HOUR,
    NOTHING_MEASURED,
    RemainingCost,
    RemainingWork,
    StudyCost,
    packed,
    remaining_cost,
)
from bench.plan.estimate import Calibration, Rates, rate_key
from bench.plan.price import Price
from bench.plan.resources import Needs, state_bytes
from bench.plan.sizes import DataSizes
from bench.store.records import DamagedRecord, read_record
from bench.study import registry
from bench.study.cell import Cell
from bench.study.options import Machine, Pricing
from bench.study.record import Record

RECORDED_MODEL_ERROR = 0.1  # error (of the logarithm) of a throughput that was recorded for the same model
OTHER_MODEL_ERROR = 0.2  # least error of a throughput that follows from other models' records
WALL_TIME_TOLERANCE = 1.05  # fewer devices per cell are taken if wall time is up to this factor over the shortest
SPENT_TOLERANCE = 1.05  # a cheaper proposal may take up to this factor over the fewest device-hours
USABLE_MEMORY_SHARE = 0.85  # fraction of the memory that weights and activations may take


def of(machine: Machine, pricing: Pricing, *, device: str, reason: str) -> NamedHardware:
    """Return the cost model of the devices that --hardware names; without it, of one accelerator that is assumed.

    Args:
        device, reason: this machine's device as `bench.core.device.find_device` returns it; for a GPU, `reason` is its
            name.

    Raises:
        UserError: the hardware is not known, or --share was given.
    """
    if machine.share != "none":
        what = f"--share {machine.share} is for GPUs of this machine, and not for {pricing.hardware or 'others'}."
        raise UserError(what, "Leave it out: a plan for other devices has one run on each.")
    if not pricing.hardware:
        assumed = Hardware(device=accelerator(pricing.accelerator or "H100"))
        said = f"one {assumed}, assumed: name yours with --hardware"
        return NamedHardware(hardware=assumed, measured=False, reason=said)
    hardware, present = parse(pricing.hardware, cores=pricing.cores), accelerator_of(reason)
    here = present is not None and present.name == hardware.device.name
    said = f"{hardware}, {'as the one here' if here else 'not here'}"
    return NamedHardware(hardware=hardware, measured=here, reason=said)


@dataclass(frozen=True, kw_only=True)
class NamedHardware:
    """The cost model of hardware that the user names; `bench.plan.cost_model.CostModel` describes the members.

    Attributes:
        measured: whether throughputs are measured, because this machine has such a device.
    """

    hardware: Hardware
    measured: bool
    reason: str
    device: str = "cuda"

    def cost(self, left: RemainingWork) -> StudyCost:
        """Return the cost of the work that is left. In a plan without --ranks, the number of devices that train each
        cell together is chosen so that everything is finished soonest."""
        machine = left.machine
        workers = preflight.workers_on(self.hardware.count, machine, left.cells)
        calibration, needs = NOTHING_MEASURED, dict[Cell, Needs]()
        if left.training:
            calibration = self._rates(left)
            needs = self._needs(left, calibration)
        ranks, cells, proposal = machine.ranks, self._cells(left, calibration, needs, ranks=machine.ranks), ""
        if ranks == 1 and not left.to_run:
            ranks, cells, proposal = self._soonest(left, calibration, needs)
            workers = machine.workers or max(1, self.hardware.count // ranks)
        return StudyCost(
            workers=workers, threads=1, ranks=ranks, cells=cells, calibration=calibration, proposal=proposal
        )

    def _cells(
        self, left: RemainingWork, calibration: Calibration, needs: Mapping[Cell, Needs], *, ranks: int
    ) -> dict[Cell, RemainingCost]:
        costs = {
            cell: remaining_cost(
                cell,
                calibration,
                left.sizes,
                device=self.device,
                ranks=ranks,
                fraction=fraction,
                needs=needs.get(cell),
            )
            for cell, fraction in left.fractions.items()
        }
        return {
            cell: cost if cost.seconds is None else replace(cost, device_hours=cost.seconds * ranks / HOUR)
            for cell, cost in costs.items()
        }

    def _soonest(
        self, left: RemainingWork, calibration: Calibration, needs: Mapping[Cell, Needs]
    ) -> tuple[int, dict[Cell, RemainingCost], str]:
        """Choose how many devices train each cell together so that all is done soonest, or fewer if that makes little
        difference.

        Returns:
            That number, each unfinished cell's cost with it, and a sentence that proposes another number if that costs
                less, else "".
        """
        made, walls = dict[int, dict[Cell, RemainingCost]](), dict[int, float]()
        for ranks in (2**k for k in range(self.hardware.count.bit_length())):
            made[ranks] = self._cells(left, calibration, needs, ranks=ranks)
            seconds = [cost.seconds or 0.0 for cost in made[ranks].values() if cost.refused is None]
            walls[ranks] = packed(seconds, self.hardware.count // ranks)
        best = next(ranks for ranks, wall in walls.items() if wall <= WALL_TIME_TOLERANCE * min(walls.values()))
        spent = {ranks: sum(cost.device_hours or 0.0 for cost in costs.values()) for ranks, costs in made.items()}
        most = SPENT_TOLERANCE * min(spent.values())
        cheap = min((ranks for ranks in spent if spent[ranks] <= most), key=walls.__getitem__)
        if cheap == 1 or SPENT_TOLERANCE * spent[cheap] >= spent[best]:  # --ranks 1 itself means the soonest
            return best, made[best], ""
        hours = f"{significant(spent[cheap])} {self.hardware.device.name}-hours, not {significant(spent[best])}"
        days = f"{duration(walls[cheap])}, not {duration(walls[best])}"
        return best, made[best], f"--ranks {cheap} costs less and takes longer: {hours}, and {days}."

    def _rates(self, left: RemainingWork) -> Calibration:
        """Return the throughputs of the cells that train: measured if this machine has such a device, else predicted
        from FLOPs and sizes of the models, which are counted now or read from a table."""
        found = estimate.calibrate(
            left.training,
            left.sizes,
            device=self.device if self.measured else "cpu",
            threads=1,
            processes=1 if self.measured else environment.cores(),
            anew=left.pricing.calibrate,
            report=left.report,
            measure=self.measured,
            known=None if self.measured or left.pricing.calibrate else _counted(left.training, left.sizes),
        )
        if self.measured:
            return found
        known = recorded(left.results, self.hardware.device)
        return rates_on(self.hardware, found, left.training, left.sizes, known)

    def _needs(self, left: RemainingWork, calibration: Calibration) -> dict[Cell, Needs]:
        """Return cell -> the memory and disk that it needs, for the cells that train and whose throughput is known."""
        rated = estimate.rated(left.training, calibration, left.sizes)
        trained = [(cell, rates) for cell, rates in rated if cell.horizons != (0,)]
        decoded = feed.per_core([cell for cell, _ in trained], left.sizes)
        there, ranks = self.hardware.device, left.machine.ranks
        return {
            cell: resources.needs(
                cell,
                rates,
                left.sizes,
                device=self.device,
                memory=round(there.gigabytes * 1e9),
                decoded_per_second=self.hardware.cores_each * decoded.get(cell, 0.0),
                ranks=ranks,
                micro=micro_batch(cell, rates, there, ranks=ranks),
            )
            for cell, rates in trained
        }


def on_one(name: str, cells: Sequence[Cell], left: RemainingWork, calibration: Calibration) -> Price:
    """Return the price of what is left of these cells on one device, by a roofline (an upper limit of speed).

    Args:
        name: name of the device, such as "H100".
        left: the work of the study, which says how much of each cell is done.
        calibration: holds the FLOPs and sizes of the cells' models.
    """
    one = Hardware(device=accelerator(name))
    decoded = feed.per_core(cells, left.sizes)
    there = rates_on(one, calibration, cells, left.sizes, {})
    costs = []
    for cell in cells:
        fraction = left.fractions[cell]
        cost = estimate.cell_cost(cell, there, left.sizes, ranks=1, fraction=fraction, device="cuda")
        rates = there.rates[rate_key(cell, left.sizes[cell.data].classes)]
        decoding = one.cores_each * decoded.get(cell, 0.0)
        seconds = cost.fed(estimate.waiting(rates.train_images_per_second, decoding, device="cuda"))
        costs.append(RemainingCost(device_hours=seconds / HOUR, error=rates.error, basis=rates.basis))
    wall = sum(cost.device_hours or 0.0 for cost in costs) * HOUR
    return price.of(costs, hardware=one, ranks=1, wall=wall, asked=None)


# -- rates -------------------------------------------------------------------------------------------------------------


def _counted(cells: Iterable[Cell], sizes: DataSizes) -> dict[str, Rates]:
    """Return `rate_key` (which identifies a model and how it is trained) -> FLOPs and sizes of the model, for the cells
    whose networks are in the package's table."""
    of_cells = ((cell, sizes[cell.data].classes) for cell in cells)
    found = ((rate_key(cell, classes), counted.find(cell, classes)) for cell, classes in of_cells)
    return {key: rates for key, rates in found if rates is not None}


def recorded(results: Path, device: Accelerator) -> dict[str, float]:
    """Return `rate_key` (which identifies a model and how it is trained) -> images per second that training reached on
    one such device, by the records of every study below the folder `results`. Damaged records are skipped."""
    medians: dict[str, list[float]] = {}
    for path in sorted(results.glob("*/cells/*/record.json")) if results.is_dir() else ():
        try:
            record = read_record(path)
        except (DamagedRecord, UserError, OSError):
            continue
        if record.cell.rehearsal:  # its networks are shallower than their names say
            continue
        if _is_of(record, device):
            rates = [h.images_per_second for h in record.horizons if h.images_per_second]
            if rates:
                ranks = record.execution.ranks or 1
                key = rate_key(record.cell, record.data.num_classes or 0)
                medians.setdefault(key, []).append(statistics.median(rates) / ranks)
    return {key: statistics.median(rates) for key, rates in medians.items()}


def _is_of(record: Record, device: Accelerator) -> bool:
    row = accelerator_of(record.environment.accelerator or "")
    return row is not None and row.name == device.name


def rates_on(
    hardware: Hardware, calibration: Calibration, cells: Sequence[Cell], sizes: DataSizes, records: Mapping[str, float]
) -> Calibration:
    """Return the calibration with the throughputs of one device of this hardware in place of those measured here.

    Args:
        records: `rate_key` -> images per second of training that were recorded on such a device.
    """
    roofs: dict[str, tuple[Cell, Rates, float]] = {}
    for cell in cells:
        key = rate_key(cell, sizes[cell.data].classes)
        if key in calibration.rates and key not in roofs:
            rates = calibration.rates[key]
            roofs[key] = (cell, rates, _roof(cell, rates, hardware.device))
    shares = {}
    for key, (cell, _, roof) in roofs.items():
        if (own := records.get(key)) and roof:
            shares[key] = (registry.family_of(cell.model).label, own / roof)
    made = {
        key: _rates(cell, rates, roof, hardware.device, records.get(key), shares.values())
        for key, (cell, rates, roof) in roofs.items()
    }
    return replace(calibration, rates={**calibration.rates, **made}, age=None)


def _roof(cell: Cell, rates: Rates, device: Accelerator) -> float:
    """Return the images per second of training that the roofline of a device allows; 0 for a model that trains nothing.
    `rates`: FLOPs and sizes of the model."""
    images = micro_batch(cell, rates, device)
    work = roofline.StepWork(
        family=registry.family_of(cell.model).label,
        flops=rates.train_flops_per_image["dense"],
        activation_bytes=rates.activation_bytes,
        params=rates.params,
        images=images,
    )
    return images / roofline.seconds(work, device) if rates.params else 0.0


def _rates(
    cell: Cell,
    rates: Rates,
    roof: float,
    device: Accelerator,
    own: float | None,
    shares: Iterable[tuple[str, float]],
) -> Rates:
    """Return the throughputs of a cell on a device: as recorded, else a fraction of the roofline.

    Args:
        rates: FLOPs and sizes of the cell's model.
        roof: images per second of training by the roofline; 0: the throughput in `rates` is kept.
        own: images per second in records of the same model, trained alike; None: there are no such records.
        shares: (family, fraction of the roofline that records reach), for every model that has records.
    """
    family = registry.family_of(cell.model).label
    like = [math.log(share) for other, share in shares if other == family]
    if own:
        rate, error, basis = own, RECORDED_MODEL_ERROR, f"recorded on {device.name}"
    elif like:
        share = math.exp(statistics.mean(like))
        error = max(OTHER_MODEL_ERROR, statistics.stdev(like) if len(like) > 1 else 0.0)
        rate, basis = share * roof, f"{share:.0%} of the roofline of {device.name}, as records of other models reach"
    else:
        known = roofline.reached(family, device.name)
        error, rate, basis = known.error, known.share * roof, f"{known.source}; the roofline is {device.name}'s"
    rate = rate or rates.train_images_per_second
    return replace(
        rates,
        train_images_per_second=rate,
        eval_images_per_second=roofline.INFERENCE_SPEEDUP * rate,
        measured=False,
        basis=basis,
        error=error,
        share=1.0,
    )


# -- memory ------------------------------------------------------------------------------------------------------------


def micro_batch(cell: Cell, rates: Rates, device: Accelerator, *, ranks: int = 1) -> int:
    """Return how many images pass through one device at once: its part of the batch, which `ranks` devices share,
    halved until it fits into memory; at least one."""
    images = max(1, min(cell.recipe.batch, cell.recipe.micro_batch or cell.recipe.batch) // ranks)
    while images > 1 and memory(cell, rates, images=images, ranks=ranks) > USABLE_MEMORY_SHARE * device.gigabytes * 1e9:
        images = (images + 1) // 2
    return images


def memory(cell: Cell, rates: Rates, *, images: int, ranks: int) -> int:
    """Return the bytes that training needs on one device: for weights, gradients and optimizer, and for the activations
    of `images` images in bfloat16. `ranks`: devices that train the model together."""
    return state_bytes(cell.recipe, rates.params, ranks=ranks) + images * rates.activation_bytes // 2


COST_MODEL = of
