"""A clock that pauses while this process is not running: stopped by a signal, frozen with its container, or on a
suspended machine. Costs and timeouts are measured with it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

POLL_SECONDS = 0.5  # seconds between two readings of the clock
STOPPED_AFTER = 2.0  # seconds without a reading after which the process may have been stopped
STOPPED_PROCESSOR_SHARE = 0.05  # the process was stopped if it used the CPU for less than this fraction of that time


class RunningClock:
    """Counts the seconds in which this process ran or could have run. Calling the clock reads it.

    A thread reads the clock every `POLL_SECONDS` seconds. If nothing has read it for `STOPPED_AFTER` seconds and the
    process used hardly any CPU time meanwhile, the process was not running: a process that waits for a disk, a device
    or another process still reads its clock, and a process that computes without a pause uses CPU time.
    """

    def __init__(
        self, *, wall: Callable[[], float] = time.perf_counter, used: Callable[[], float] = time.process_time
    ) -> None:
        self._wall, self._used = wall, used
        self._lock = threading.Lock()
        self._seen, self._spent, self.stopped = wall(), used(), 0.0

    def __call__(self) -> float:
        with self._lock:
            now, spent = self._wall(), self._used()
            gap = now - self._seen
            if gap > STOPPED_AFTER and spent - self._spent < STOPPED_PROCESSOR_SHARE * gap:
                self.stopped += gap - POLL_SECONDS
            self._seen, self._spent = now, spent
            return now - self.stopped

    def watch(self) -> None:
        """Read the clock every `POLL_SECONDS` seconds; never return."""
        while True:
            time.sleep(POLL_SECONDS)
            self()


_clock: RunningClock | None = None
_starting = threading.Lock()


def running() -> float:
    """Return the reading, in seconds, of a clock that pauses while this process is not running. Only the difference of
    two readings has a meaning."""
    global _clock
    if _clock is None:
        with _starting:
            if _clock is None:
                _clock = RunningClock()
                threading.Thread(target=_clock.watch, daemon=True, name="clock").start()
    return _clock()
