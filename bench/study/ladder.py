"""The place of a cell in a ladder: its change, and its rung. It is stored as an axis of the cell.

A ladder compares a change with its baseline at several amounts of compute, the rungs.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

AXIS = re.compile(r"ladder: (.+) on rung (\d+)")
BASELINE = "baseline"


@dataclass(frozen=True, kw_only=True)
class LadderPlace:
    """Which change a cell is trained with, and at which amount of compute.

    Attributes:
        change: the change as the user typed it, or `BASELINE`.
        rung: index of the amount of compute; 0 is the least.
    """

    change: str
    rung: int

    @property
    def axis(self) -> str:
        """The text that stands for this place among the axes of a cell; see `place_of`."""
        return f"ladder: {self.change} on rung {self.rung}"


def place_of(axes: tuple[str, ...]) -> LadderPlace | None:
    """Return the place in a ladder that one of a cell's axes names; None if no axis does."""
    for axis in axes:
        if match := AXIS.fullmatch(axis):
            return LadderPlace(change=match[1], rung=int(match[2]))
    return None
