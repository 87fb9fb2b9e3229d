"""Record traces of a few training steps with torch.profiler, for TensorBoard's torch-tb-profiler plug-in and Perfetto.

    with profile(attempt / "trace", device=device) as trace:
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

import torch

from bench.cost import trace
from bench.cost.trace import ACTIVE, WAIT, WARM_UP, Trace


@contextlib.contextmanager
def profile(folder: Path, *, device: str = "cpu", name: str = "worker0", active: int = ACTIVE) -> Iterator[Trace]:
    """Record a few of the steps that run inside the `with` block, whose value is a `Trace`, into a file
    `folder`/<name>.<time>.pt.trace.json, the layout that TensorBoard's plug-in reads.

    The first steps are not recorded. After `active` recorded steps the trace is written, and the rest runs unrecorded.
    If the block has fewer steps, the trace has those that were recorded.

    Args:
        name: name of the worker that the plug-in shows; it is fixed so that no host name gets into results.
    """
    folder.mkdir(parents=True, exist_ok=True)
    activities = [torch.profiler.ProfilerActivity.CPU]
    if device.startswith("cuda"):
        activities.append(torch.profiler.ProfilerActivity.CUDA)
    handler = torch.profiler.tensorboard_trace_handler(str(folder), worker_name=name)

    def finished(profiler: Any) -> None:
        trace.recording = False
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
        trace.recording = True
        try:
            yield Trace(profiler)
        finally:
            trace.recording = False


def _anonymous(path: Path) -> None:
    """Remove this machine's name and folders from a trace file."""
    content = json.loads(path.read_text(encoding="utf-8"))
    if [content.pop(key, None) for key in ("traceName", "host_name")] != [None, None]:
        path.write_text(json.dumps(content), encoding="utf-8")
