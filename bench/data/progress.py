"""Progress display for long work on many images."""

from __future__ import annotations

import sys
import time


class Progress:
    """Prints a line on stderr every few seconds of long work, with the time left; prints nothing for short work.

    Args:
        what: the work, for people.
        total: number of units to do.
        unit: name of the units.
        every_s: seconds between lines.
    """

    def __init__(self, what: str, total: int, *, unit: str = "images", every_s: float = 5.0) -> None:
        self.what, self.total, self.unit, self.every_s = what, total, unit, every_s
        self.done = 0
        self._start = self._last = time.monotonic()

    def step(self, count: int = 1) -> None:
        self.done += count
        now = time.monotonic()
        if now - self._last >= self.every_s:
            self._last = now
            left = (now - self._start) / self.done * (self.total - self.done)
            line = f"{self.what}: {self.done:,} of {self.total:,} {self.unit}, about {left:,.0f} s left"
            print(line, file=sys.stderr, flush=True)
