"""The place of a run in a ladder: which change it has, and on which rung it stands. It is an axis of its cell."""

from __future__ import annotations

import re
from dataclasses import dataclass

AXIS = re.compile(r"ladder: (.+) on rung (\d+)")
BASELINE = "baseline"


@dataclass(frozen=True, kw_only=True)
class LadderPlace:
    """`change`: as it was typed, or `BASELINE`. `rung`: 0 is the one of least compute."""

    change: str
    rung: int

    @property
    def axis(self) -> str:
        """The axis of the cell."""
        return f"ladder: {self.change} on rung {self.rung}"


def place_of(axes: tuple[str, ...]) -> LadderPlace | None:
    """The place that one of a cell's axes says; None where none does."""
    for axis in axes:
        if match := AXIS.fullmatch(axis):
            return LadderPlace(change=match[1], rung=int(match[2]))
    return None
