"""Traces of a few steps by torch.profiler, for TensorBoard's torch-tb-profiler plug-in and for Perfetto.

    with profile(attempt / "trace", enabled=context.profile, device=device) as trace:
        for images, labels in batches:
            with label("forward"):
                ...
            trace.step()

`tensorboard --logdir <folder>` shows the folder's traces; ui.perfetto.dev opens the .json file itself.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

LABELS = ("data", "forward", "backward", "optimizer", "evaluate")
WAIT, WARM_UP, ACTIVE = 1, 1, 4  # steps left out, steps whose overhead is discarded, steps recorded

_active = False


def label(name: str) -> contextlib.AbstractContextManager[Any]:
    """Marks a part of a step in the trace. Costs nothing while no trace is being made.

    Raises:
        ValueError: not one of LABELS.
    """
    if name not in LABELS:
        raise ValueError(f"{name!r} is not a label of the trace; labels are {', '.join(LABELS)}")
    if not _active:
        return contextlib.nullcontext()
    import torch

    return torch.profiler.record_function(name)


class Trace:
    """A trace that is being made; `step()` ends one step of it. Without a profiler it does nothing."""

    def __init__(self, profiler: Any = None) -> None:
        self._profiler = profiler

    def step(self) -> None:
        if self._profiler is not None:
            self._profiler.step()


@contextlib.contextmanager
def profile(
    folder: Path, *, enabled: bool = True, device: str = "cpu", name: str = "worker0", active: int = ACTIVE
) -> Iterator[Trace]:
    """Record a few steps into `folder`/<name>.<time>.pt.trace.json, the layout that TensorBoard's plug-in reads.

    The first steps are left out; after `active` recorded ones the trace is written and the rest runs unrecorded. A
    block with fewer steps leaves what it had.

    Args:
        enabled: False makes this a no-op, so that callers need no branch.
        name: of the worker, shown by the plug-in; a fixed one, so that no host name gets into results.
    """
    global _active
    if not enabled:
        yield Trace()
        return
    import torch

    folder.mkdir(parents=True, exist_ok=True)
    activities = [torch.profiler.ProfilerActivity.CPU]
    if device.startswith("cuda"):
        activities.append(torch.profiler.ProfilerActivity.CUDA)
    handler = torch.profiler.tensorboard_trace_handler(str(folder), worker_name=name)

    def finished(profiler: Any) -> None:
        global _active
        _active = False
        handler(profiler)
        for path in folder.glob(f"{name}.*.pt.trace.json"):
            _anonymous(path)

    schedule = torch.profiler.schedule(wait=WAIT, warmup=WARM_UP, active=active, repeat=1)
    with torch.profiler.profile(
        activities=activities,
        schedule=schedule,
        on_trace_ready=finished,
        record_shapes=True,
        profile_memory=True,
    ) as profiler:
        _active = True
        try:
            yield Trace(profiler)
        finally:
            _active = False


def _anonymous(path: Path) -> None:
    """Take this machine's name and folders out of a trace."""
    content = json.loads(path.read_text(encoding="utf-8"))
    if [content.pop(key, None) for key in ("traceName", "host_name")] != [None, None]:
        path.write_text(json.dumps(content), encoding="utf-8")


def newest(folder: Path) -> Path | None:
    """The trace that was written last, or None."""
    return max(folder.glob("*.pt.trace.json"), key=lambda p: p.stat().st_mtime_ns, default=None)
