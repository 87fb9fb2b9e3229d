"""TensorBoard: one event file per cell (training run), below `tensorboard/` in the study's folder.

The content of a file depends only on the cell's rows of metrics. If the old content is the beginning of the new one,
the rest is appended, which a running TensorBoard shows at once; an equal file is left alone; any other is replaced.
"""

from __future__ import annotations

import io
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path

from bench.core import files
from bench.trackers.tracker import IMAGES, TrackedRun, Tracker


def write(runs: Iterable[TrackedRun], *, folder: Path, project: str) -> int:
    """Write each run to `folder`/tensorboard/<cell>/events.out.tfevents.<id>.

    Args:
        runs: the metrics of cells (training runs).
        project: not used, because TensorBoard has no projects.

    Returns:
        How many files changed.
    """
    return sum(_put(folder / "tensorboard" / run.name / f"events.out.tfevents.{run.id}", to_bytes(run)) for run in runs)


def to_bytes(run: TrackedRun) -> bytes:
    """Return the content of a run's event file: one event per row of metrics. Every event has the start time of the
    run's cell, so that equal rows give equal bytes."""
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.record_writer import RecordWriter

    started = datetime.fromisoformat(run.started).timestamp() if run.started else 0.0
    buffer = io.BytesIO()
    writer = RecordWriter(buffer)
    writer.write(Event(wall_time=started, file_version="brain.Event:2").SerializeToString())
    for row in run.rows:
        values = [Summary.Value(tag=name, simple_value=value) for name, value in row.items() if name != IMAGES]
        event = Event(wall_time=started, step=int(row[IMAGES]), summary=Summary(value=values))
        writer.write(event.SerializeToString())
    return buffer.getvalue()


def _put(path: Path, data: bytes) -> bool:
    files.remove_leftovers(path.parent)
    before = path.read_bytes() if path.is_file() else b""
    if before == data:
        return False
    files.make_directory(path.parent)
    if before and data.startswith(before):
        try:
            with open(path, "ab") as handle:
                handle.write(data[len(before) :])
        except OSError as error:
            raise files.explain(error, path) from error
    else:
        files.write_bytes(path, data)
    return True


TRACKER = Tracker(package="tensorboard", extra="tensorboard", write=write)
