"""MLflow: one run per cell (training run), in the store that MLFLOW_TRACKING_URI names, or else in `mlflow.db` in the
study's folder.

A run is found by its tag `cell`; its tag `series` says which rows of metrics it has. All points get the start time of
the cell. A point that is sent twice is then equal, and MLflow stores it once.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from bench.trackers.tracker import IMAGES, TrackedRun, Tracker, known_rows, series_of

if TYPE_CHECKING:
    from mlflow.tracking import MlflowClient

AT_ONCE = 1000  # MLflow accepts at most this many metrics in one call
STATUS = {"running": "RUNNING", "complete": "FINISHED"}  # our status -> MLflow's; any other is "FAILED"


def write(runs: Iterable[TrackedRun], *, folder: Path, project: str) -> int:
    """Send those rows of metrics to MLflow that it does not have yet.

    Args:
        runs: the metrics of cells (training runs).
        folder: where `mlflow.db` is kept, unless MLFLOW_TRACKING_URI is set.
        project: name of the experiment.

    Returns:
        How many runs changed.
    """
    from mlflow.tracking import MlflowClient

    client = MlflowClient(tracking_uri=os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{folder / 'mlflow.db'}")
    experiment = client.get_experiment_by_name(project)
    number = experiment.experiment_id if experiment else client.create_experiment(project)
    return sum(_put(client, number, run) for run in runs)


def _put(client: MlflowClient, experiment: str, run: TrackedRun) -> bool:
    from mlflow.entities import Metric, Param

    found = client.search_runs([experiment], filter_string=f"tags.cell = '{run.id}'")
    there = found[0] if found else None
    begin = known_rows(run, there.data.tags.get("series")) if there else 0
    if there is not None and begin is None:
        client.delete_run(there.info.run_id)
        there, begin = None, 0
    if there is not None and begin == len(run.rows) and there.data.tags.get("status") == run.status:
        return False
    started = round(datetime.fromisoformat(run.started).timestamp() * 1000) if run.started else 0
    if there is None:
        tags = {"cell": run.id, "mlflow.runName": run.name}
        there = client.create_run(experiment, start_time=started, tags=tags)
    number = there.info.run_id
    metrics = [
        Metric(_allowed(name), value, started, int(row[IMAGES]))
        for row in run.rows[begin:]
        for name, value in row.items()
        if name != IMAGES
    ]
    for first in range(0, len(metrics), AT_ONCE):
        client.log_batch(number, metrics=metrics[first : first + AT_ONCE])
    client.log_batch(number, params=[Param(_allowed(name), str(value)) for name, value in run.config.items()])
    client.set_tag(number, "series", series_of(run.rows))
    client.set_tag(number, "status", run.status)
    client.set_terminated(number, status=STATUS.get(run.status, "FAILED"), end_time=None if run.finished else 0)
    return True


def _allowed(name: str) -> str:
    """Return a metric's or parameter's name with the characters that MLflow does not allow (":" for instance) replaced
    by "_"."""
    return re.sub(r"[^\w\-. /]", "_", name)


TRACKER = Tracker(package="mlflow", extra="mlflow", write=write, project_variable="MLFLOW_EXPERIMENT_NAME")
