"""Trackio: one run per cell (training run), in Trackio's local database (TRACKIO_DIR), which `trackio show`
displays."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from bench.trackers.tracker import Row, TrackedRun, Tracker


def write(runs: Iterable[TrackedRun], *, folder: Path, project: str) -> int:
    """Send those rows of metrics to Trackio that it does not have yet.

    Args:
        runs: the metrics of cells (training runs).
        folder: not used, because Trackio has a database of its own.
        project: name of the project.

    Returns:
        How many runs changed.
    """
    return sum(_put(run, project) for run in runs)


def _put(run: TrackedRun, project: str) -> bool:
    import trackio

    there = _rows(project, run.name)
    if there != list(run.rows[: len(there)]):
        for other in trackio.Api().runs(project):
            if other.name == run.name:
                other.delete()
        there = []
    if len(there) == len(run.rows):
        return False
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
        made = trackio.init(
            project,
            name=run.name,
            group=run.study,
            config={**run.config, "cell": run.id},
            resume="allow",
            embed=False,
            auto_log_gpu=False,
            auto_log_cpu=False,
        )
        for step, row in list(enumerate(run.rows))[len(there) :]:
            made.log(dict(row), step=step)
        trackio.finish()
    return True


def _rows(project: str, name: str) -> list[Row]:
    """Return the rows of metrics that Trackio's database has of a run, in order; [] without such a project or run.

    Args:
        project: name of the project.
        name: name of the run.
    """
    from trackio.sqlite_storage import SQLiteStorage

    if not SQLiteStorage.get_project_db_path(project).exists():
        return []
    logs: list[dict[str, Any]] = SQLiteStorage.get_logs(project, name)
    ordered = sorted(logs, key=lambda row: row["step"])
    return [{key: value for key, value in row.items() if key not in ("step", "timestamp")} for row in ordered]


TRACKER = Tracker(package="trackio", extra="trackio", write=write)
