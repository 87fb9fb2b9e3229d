"""The price of a plan on named devices: hours of one device, wall time, and money, each with its range."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from bench.cost.hardware import Hardware

RANGE_DEVIATIONS = 1.2816  # a range of 80 % reaches so many standard deviations to either side
HOUR = 3600.0  # seconds


class Priced(Protocol):
    """The attributes of a planned cell on which its price depends; see `bench.plan.plan.PlannedCell`."""

    @property
    def device_hours(self) -> float | None: ...
    @property
    def error(self) -> float: ...
    @property
    def basis(self) -> str | None: ...


@dataclass(frozen=True, kw_only=True)
class Price:
    """The price of what is left of a plan.

    The 80 % range of each amount (hours, money) goes from amount / `factor` to amount * `factor`. All cells share one
    error, since most throughputs rest on the same assumption.

    Attributes:
        hardware: the devices that are priced.
        ranks: devices that train one cell together.
        device_hours: hours of one device, summed over devices.
        hours: hours of wall time.
        factor: factor of the range, at least 1.
        asked: (price of an hour, whether it is for one device rather than for all). With a price for all devices, an
            hour is paid for whether or not each of them has work. None: no price was given.
        bases: where throughputs come from, in words.
    """

    hardware: Hardware
    ranks: int
    device_hours: float
    hours: float
    factor: float
    asked: tuple[float, bool] | None
    bases: tuple[str, ...]

    @property
    def unit(self) -> str:
        return f"{self.hardware.device.name}-hours"

    @property
    def money(self) -> float | None:
        if self.asked is None:
            return None
        amount, for_one = self.asked
        return amount * (self.device_hours if for_one else self.hours)

    def json(self) -> dict[str, Any]:
        """Return the price as JSON types."""
        low, high = 1 / self.factor, self.factor
        body: dict[str, Any] = {
            "hardware": self.hardware.device.name,
            "devices": self.hardware.count,
            "ranks": self.ranks,
            "device_hours": self.device_hours,
            "hours": self.hours,
            "level": 0.8,
            "device_hours_range": [self.device_hours * low, self.device_hours * high],
            "hours_range": [self.hours * low, self.hours * high],
            "basis": list(self.bases),
        }
        if self.money is not None:
            body |= {"money": self.money, "money_range": [self.money * low, self.money * high]}
        return body


def of(
    todo: Sequence[Priced], *, hardware: Hardware, ranks: int, wall: float, asked: tuple[float, bool] | None
) -> Price:
    """Return the price of cells on this hardware.

    Args:
        todo: the cells that are left.
        ranks: devices that train one cell together.
        wall: seconds that all of the cells take there.
        asked: (price of an hour, whether it is for one device rather than for all); None: no price was given.
    """
    hours = sum(cell.device_hours or 0.0 for cell in todo)
    weighted = sum((cell.device_hours or 0.0) * cell.error for cell in todo)
    return Price(
        hardware=hardware,
        ranks=ranks,
        device_hours=hours,
        hours=wall / HOUR,
        asked=asked,
        factor=math.exp(RANGE_DEVIATIONS * weighted / hours) if hours else 1.0,
        bases=tuple(dict.fromkeys(cell.basis for cell in todo if cell.basis)),
    )
