"""The place of a cell in a ladder, stored as one of the cell's axes.

A ladder is a study that compares a change of a model or its training with the unchanged baseline at several amounts of
compute, the rungs.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

AXIS = re.compile(r"ladder: (.+) on rung (\d+)")
BASELINE = "baseline"


@dataclass(frozen=True, kw_only=True)
class LadderPlace:
    """The place of a cell in a ladder, a comparison of a change with its baseline at several amounts of compute.

    Attributes:
        change: the change that the cell is trained with, as the user typed it; `BASELINE` for a cell without a change.
        rung: index of the amount of compute; 0 is the least.
    """

    change: str
    rung: int

    @property
    def axis(self) -> str:
        """The text that names this place in a cell's `axes` (comparisons that it is part of); `place_of` parses it."""
        return f"ladder: {self.change} on rung {self.rung}"


def place_of(axes: tuple[str, ...]) -> LadderPlace | None:
    """Return a cell's place in a ladder, which one of its `axes` (comparisons that it is part of) names; None if the
    cell is in no ladder."""
    for axis in axes:
        if match := AXIS.fullmatch(axis):
            return LadderPlace(change=match[1], rung=int(match[2]))
    return None
