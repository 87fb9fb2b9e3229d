"""Named points in the program at which tests kill or stop the process.

Outside tests the environment variable VIT_BENCH_FAULT is not set, and `reach` does nothing.
"""

from __future__ import annotations

import os
import signal

VARIABLE = "VIT_BENCH_FAULT"
POINTS = (
    "training-step",
    "checkpoint-before-rename",
    "checkpoint-after-rename",
    "after-evaluation",
    "record-before-replace",
    "record-after-replace",
    "during-report",
)

_passed: dict[str, int] = {}


def reach(point: str) -> None:
    """Send a signal to this process if the environment variable VIT_BENCH_FAULT is "<point>[:<n>[:<signal>]]" and this
    is the n-th call with that point. By default n is 1, and the signal is SIGKILL."""
    wanted = os.environ.get(VARIABLE)
    if not wanted:
        return
    name, count, how = (*wanted.split(":"), "", "")[:3]
    if name == point:
        _passed[point] = _passed.get(point, 0) + 1
        if _passed[point] == int(count or 1):
            os.kill(os.getpid(), signal.Signals[how or "SIGKILL"])
