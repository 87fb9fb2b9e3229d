"""Weights & Biases: one run per cell (training run), with the cell's id.

Runs are sent at once if WANDB_API_KEY is set; otherwise they are written below `wandb/` in the study's folder, for
`wandb sync`. WANDB_MODE ("online", "offline") overrides this. `series.json` beside the files of a run says which rows
of metrics they hold. If it is missing, writing was interrupted, and the files are removed.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable
from pathlib import Path

from bench.core import files
from bench.trackers.tracker import IMAGES, TrackedRun, Tracker, known_rows, series_of

SERIES = "series.json"


def write(runs: Iterable[TrackedRun], *, folder: Path, project: str) -> int:
    """Send those rows of metrics to Weights & Biases that it does not have yet.

    Args:
        runs: the metrics of cells (training runs).
        folder: runs are kept below `wandb/` in it.
        project: name of the project.

    Returns:
        How many runs changed.
    """
    return sum(_put(run, folder, project) for run in runs)


def _put(run: TrackedRun, folder: Path, project: str) -> bool:
    import wandb

    number, told = _told(folder, run.id)
    begin = known_rows(run, told.get("series"))
    if begin is None:  # the cell was trained anew: start another run, because rows that were sent cannot be removed
        number, told, begin = number + 1, {}, 0
    if told and begin == len(run.rows) and told.get("status") == run.status:
        return False
    made = wandb.init(
        project=project,
        group=run.study,
        name=run.name,
        id=_name(run.id, number),
        resume="allow",
        dir=folder,
        mode=os.environ.get("WANDB_MODE", "online" if os.environ.get("WANDB_API_KEY") else "offline"),
        reinit="finish_previous",
        config=dict(run.config),
        settings=wandb.Settings(silent=True, x_disable_stats=True, console="off", x_disable_meta=True),
    )
    made.define_metric("*", step_metric=IMAGES)
    for step in range(begin, len(run.rows)):
        made.log(dict(run.rows[step]), step=step)
    made.summary["status"] = run.status
    place = Path(made.dir).parent / SERIES
    made.finish(exit_code=0 if run.status in ("running", "complete") else 1)
    files.write_json(place, {"series": series_of(run.rows), "status": run.status})
    return True


def _name(cell: str, number: int) -> str:
    return cell if number == 1 else f"{cell}-{number}"


def _told(folder: Path, cell: str) -> tuple[int, dict[str, str]]:
    """Return (number of the latest W&B run of a cell, content of that run's newest `series.json`). A cell (training
    run) has one W&B run, and one more each time that it is trained anew. Files of interrupted writes are removed.

    Args:
        folder: runs are kept below `wandb/` in it.
        cell: the cell's id.
    """
    newest: dict[str, str] = {}
    number = 1
    while found := sorted((folder / "wandb").glob(f"*run-*-{_name(cell, number)}")):
        newest = {}
        for path in found:
            if (path / SERIES).is_file():
                newest = json.loads((path / SERIES).read_bytes())
            else:
                shutil.rmtree(path)
        number += 1
    return max(1, number - 1), newest


TRACKER = Tracker(package="wandb", extra="wandb", write=write, project_variable="WANDB_PROJECT")
