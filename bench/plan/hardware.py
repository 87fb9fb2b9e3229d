"""The devices that a study is priced on, where they are not those of this machine: --hardware 8xH100 --price 2.5/gpuh.

Rates come from records of such a device below --results, by model; else from the roofline (bench/cost/roofline.py) and
the share of it that records of other models reach; else the share that others published. Every rate carries its error,
one standard deviation of its logarithm.
"""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from bench.core import registry
from bench.core.errors import UserError
from bench.core.record import Record
from bench.core.spec import Cell
from bench.cost import roofline
from bench.cost.peaks import Accelerator, accelerator, accelerator_of
from bench.plan.estimate import Calibration, Rates, rate_key
from bench.plan.resources import state_bytes
from bench.plan.sizes import DataSizes
from bench.store.records import DamagedRecord, read_record

FORM = re.compile(r"(?:([1-9][0-9]{0,5})\s*[x×]\s*)?([A-Za-z][\w.-]*)")
PRICE = re.compile(r"[€$£]?([0-9]{1,9}(?:\.[0-9]{1,6})?)(?:/(gpuh|h))?")
OF_ITS_OWN = 0.1  # error of a rate that was recorded for this very model
OTHER_MODEL = 0.2  # least error of one that follows from other models' records
UNSEEN = 0.35  # more error for a family that no published rate is of
CORES = {  # processor cores per device of the makers' own servers: NVIDIA's data sheets of DGX and superchips
    "B200": 14,
    "H200": 14,
    "H100": 14,
    "A100": 16,
    "V100": 5,
    "GH200": 72,
    "GB200": 36,
}
USUAL_CORES = 8  # of other devices. Assumed
ROOM = 0.85  # of the memory, that weights and activations may take


@dataclass(frozen=True, kw_only=True)
class Hardware:
    """`count` devices of one kind, each with so many processor `cores` beside it (0: as in `CORES`)."""

    device: Accelerator
    count: int = 1
    cores: int = 0

    @property
    def cores_each(self) -> int:
        """Processor cores beside each device, which decode its images."""
        return self.cores or CORES.get(self.device.name, USUAL_CORES)

    def __str__(self) -> str:
        return f"{self.count} x {self.device.name}" if self.count > 1 else self.device.name


def parse(text: str, *, cores: int | None = None) -> Hardware:
    """ "8xH100", or "H100" for one; with so many processor cores beside each.

    Raises:
        UserError: another form, or a device that is not in the table (with the nearest).
    """
    match = FORM.fullmatch(text.strip())
    if match is None:
        raise UserError(f"{text!r} is no hardware.", "Give a number and a name, e.g. 8xH100.")
    return Hardware(device=accelerator(match[2]), count=int(match[1] or 1), cores=cores or 0)


def price(text: str) -> tuple[float, bool]:
    """(amount, whether it is for one device's hour): "2.5/gpuh" or "2.5", and "20/h" for all of them together.

    Raises:
        UserError: another form.
    """
    match = PRICE.fullmatch(text.strip())
    if match is None:
        raise UserError(f"{text!r} is no price.", "Give 2.5/gpuh for an hour of one device, or 20/h for all of them.")
    return float(match[1]), match[2] != "h"


# -- rates -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Recorded:
    """What records say of one kind of device. `rates`: images per second of one device, by `rate_key`."""

    rates: Mapping[str, float] = field(default_factory=dict)


def recorded(results: Path, device: Accelerator) -> Recorded:
    """From every study below a folder of results; damaged records say nothing."""
    found: dict[str, list[float]] = {}
    for path in sorted(results.glob("*/cells/*/record.json")) if results.is_dir() else ():
        try:
            record = read_record(path)
        except (DamagedRecord, UserError, OSError):
            continue
        if _is_of(record, device):
            rates = [h.images_per_second for h in record.horizons if h.images_per_second]
            if rates:
                ranks = record.execution.ranks or 1
                key = rate_key(record.cell, record.data.num_classes or 0)
                found.setdefault(key, []).append(statistics.median(rates) / ranks)
    return Recorded(rates={key: statistics.median(rates) for key, rates in found.items()})


def _is_of(record: Record, device: Accelerator) -> bool:
    row = accelerator_of(record.environment.accelerator or "")
    return row is not None and row.name == device.name


def rates_on(
    hardware: Hardware, calibration: Calibration, cells: Sequence[Cell], sizes: DataSizes, records: Recorded
) -> Calibration:
    """The calibration with the rates of one device of this hardware, whatever was measured here."""
    roofs: dict[str, tuple[Cell, Rates, float]] = {}
    for cell in cells:
        key = rate_key(cell, sizes[cell.data].classes)
        if key in calibration.rates and key not in roofs:
            rates = calibration.rates[key]
            roofs[key] = (cell, rates, _roof(cell, rates, hardware.device))
    shares = {}
    for key, (cell, _, roof) in roofs.items():
        if (own := records.rates.get(key)) and roof:
            shares[key] = (registry.family_of(cell.model).FAMILY, own / roof)
    made = {
        key: _rates(cell, rates, roof, hardware.device, records.rates.get(key), shares.values())
        for key, (cell, rates, roof) in roofs.items()
    }
    return replace(calibration, rates={**calibration.rates, **made}, age=None)


def _roof(cell: Cell, rates: Rates, device: Accelerator) -> float:
    """Images per second by the roofline; 0 of a model that trains nothing."""
    images = micro_batch(cell, rates, device)
    work = roofline.Work(
        family=registry.family_of(cell.model).FAMILY,
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
    """`own`: images per second that records of the same training say."""
    family = registry.family_of(cell.model).FAMILY
    like = [math.log(share) for other, share in shares if other == family]
    if own:
        rate, error, basis = own, OF_ITS_OWN, f"recorded on {device.name}"
    elif like:
        share = math.exp(statistics.mean(like))
        error = max(OTHER_MODEL, statistics.stdev(like) if len(like) > 1 else 0.0)
        rate, basis = share * roof, f"{share:.0%} of the roofline of {device.name}, as records of other models reach"
    else:
        known = roofline.reached()
        seen = family == "ViT" and device.name == "H100"
        error = known.error if seen else math.hypot(known.error, UNSEEN)
        rate, basis = known.share * roof, f"{known.source}; the roofline is {device.name}'s"
    rate = rate or rates.train_images_per_second
    return replace(
        rates,
        train_images_per_second=rate,
        eval_images_per_second=roofline.INFERENCE * rate,
        measured=False,
        basis=basis,
        error=error,
        share=1.0,
        utilisation=rate * rates.train_flops_per_image["dense"] / (device.tera["bfloat16"] * 1e12),
    )


# -- memory ------------------------------------------------------------------------------------------------------------


def micro_batch(cell: Cell, rates: Rates, device: Accelerator, *, ranks: int = 1) -> int:
    """Images that pass through one device at once: its part of the batch, halved until it fits; at least one."""
    images = max(1, min(cell.recipe.batch, cell.recipe.micro_batch or cell.recipe.batch) // ranks)
    while images > 1 and memory(cell, rates, images=images, ranks=ranks) > ROOM * device.gigabytes * 1e9:
        images = (images + 1) // 2
    return images


def memory(cell: Cell, rates: Rates, *, images: int, ranks: int) -> int:
    """Bytes on one device: weights, gradients and optimizer, and activations in bfloat16."""
    return state_bytes(cell.recipe, rates.params, ranks=ranks) + images * rates.activation_bytes // 2
