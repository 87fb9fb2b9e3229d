"""Parse from the command line the devices that a study is planned for, and their price: --hardware 8xH100 --price
2.5/gpuh."""

from __future__ import annotations

import re
from dataclasses import dataclass

from bench.core.errors import UserError
from bench.cost.peaks import Accelerator, accelerator

FORM = re.compile(r"(?:([1-9][0-9]{0,5})\s*[x×]\s*)?([A-Za-z][\w.-]*)")
PRICE = re.compile(r"[€$£]?([0-9]{1,9}(?:\.[0-9]{1,6})?)(?:/(gpuh|h))?")
CORES = {  # processor cores per device in the makers' own servers: NVIDIA's data sheets of DGX and superchips
    "B200": 14,
    "H200": 14,
    "H100": 14,
    "A100": 16,
    "V100": 5,
    "GH200": 72,
    "GB200": 36,
}
USUAL_CORES = 8  # processor cores per device of any other kind (assumed)


@dataclass(frozen=True, kw_only=True)
class Hardware:
    """The devices that a study is planned for: `count` devices of one kind, each with `cores` processor cores of its
    host.

    `cores` 0 means as many as `CORES` says for the device.
    """

    device: Accelerator
    count: int = 1
    cores: int = 0

    @property
    def cores_each(self) -> int:
        """Number of the host's processor cores per device; they decode the device's images."""
        return self.cores or CORES.get(self.device.name, USUAL_CORES)

    def __str__(self) -> str:
        return f"{self.count} x {self.device.name}" if self.count > 1 else self.device.name


def parse(text: str, *, cores: int | None = None) -> Hardware:
    """Parse a number and kind of devices, such as "8xH100", or "H100" for one device. `cores` is the number of the
    host's processor cores per device; None = as many as `CORES` says for the device.

    Raises:
        UserError: the text has another form, or the device is not in the table (the error suggests the nearest).
    """
    match = FORM.fullmatch(text.strip())
    if match is None:
        raise UserError(f"{text!r} is no hardware.", "Give a number and a name, e.g. 8xH100.")
    return Hardware(device=accelerator(match[2]), count=int(match[1] or 1), cores=cores or 0)


def price(text: str) -> tuple[float, bool]:
    """Parse a price; return the amount, and whether it is the price of one device (otherwise of all devices together).

    "2.5/gpuh" or "2.5" is the price of an hour of one device, "20/h" that of an hour of all devices together.

    Raises:
        UserError: the text has another form.
    """
    match = PRICE.fullmatch(text.strip())
    if match is None:
        raise UserError(f"{text!r} is no price.", "Give 2.5/gpuh for an hour of one device, or 20/h for all of them.")
    return float(match[1]), match[2] != "h"
