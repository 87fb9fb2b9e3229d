"""Label the parts of a training step for traces, which `bench.cost.profiler` records. Most runs record none."""

from __future__ import annotations

import contextlib
from typing import Any

LABELS = ("data", "forward", "backward", "optimizer", "evaluate")
WAIT, WARM_UP, ACTIVE = 1, 1, 4  # steps not profiled, steps profiled and discarded, steps recorded

recording = False  # whether `bench.cost.profiler` records steps now


def label(name: str) -> contextlib.AbstractContextManager[Any]:
    """Return a context manager that marks a part of a training step ("forward") in the trace. It costs nothing while no
    trace is recorded.

    Raises:
        ValueError: the name is not one of LABELS.
    """
    if name not in LABELS:
        raise ValueError(f"{name!r} is not a label of the trace; labels are {', '.join(LABELS)}")
    if not recording:
        return contextlib.nullcontext()
    import torch

    return torch.profiler.record_function(name)


class Trace:
    """A trace that is being recorded, by a profiler of torch. Call `step()` at the end of each training step; without a
    profiler that does nothing."""

    def __init__(self, profiler: Any = None) -> None:
        self._profiler = profiler

    def step(self) -> None:
        if self._profiler is not None:
            self._profiler.step()
