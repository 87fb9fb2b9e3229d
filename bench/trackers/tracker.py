"""The interface of an experiment tracker, and the runs that it is given: one per cell (training run), as rows of
metrics.

The rows come from the record of a finished cell, or from the newest checkpoint of a cell in progress. A checkpoint
holds only points that will not change, and a resumed cell repeats its work exactly. So later rows always begin with the
earlier ones: a run in a tracker has neither gaps nor duplicate points, whatever was killed in between.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.core import files
from bench.core.by_key import by_key
from bench.core.errors import UserError
from bench.core.files import canonical
from bench.store import checkpoints
from bench.store.records import DamagedRecord, build
from bench.store.study import CellDirectory, Study
from bench.study import registry
from bench.study.cell import Cell, to_json
from bench.study.record import Horizon, LearningCurve, Record

AUTO, NONE = "auto", "none"
IMAGES = "images seen"
Row = Mapping[str, float]
"""Metrics by name; every row has IMAGES, which is the x axis."""


@dataclass(frozen=True, kw_only=True)
class TrackedRun:
    """A cell (training run) in the form in which it is sent to trackers.

    Attributes:
        id: the cell's id.
        name: name of the cell's folder.
        study: name of the study.
        rows: metrics, in the order in which they were measured.
        config: the cell's fields; names of nested fields are joined by dots.
        started: time of the first attempt, ISO 8601; None if unknown.
        status: how the cell ended (a `Status` of bench/study/record.py); "running" if it has no record yet.
    """

    id: str
    name: str
    study: str
    rows: tuple[Row, ...]
    config: Mapping[str, Any] = field(default_factory=dict)
    started: str | None = None
    status: str = "running"

    @property
    def finished(self) -> bool:
        return self.status != "running"


@dataclass(frozen=True, kw_only=True)
class Tracker:
    """An experiment tracker. A file in this folder exports one as `TRACKER`.

    Attributes:
        package: the Python package that it needs.
        extra: the name by which `pip install` installs that package.
        write: (runs, folder=…, project=…) -> number of runs that changed. It sends the rows of metrics that the tracker
            does not have yet.
        project_variable: the environment variable by which users of the package set the project's name; "" if there is
            none.
    """

    package: str
    extra: str
    write: Callable[..., int]
    project_variable: str = ""


def runs_of(study: Path) -> Iterator[TrackedRun]:
    """Yield every cell (training run) of a study, given by its folder, that has metrics to show. Cells with damaged
    records are left out."""
    for directory in Study(study).directories():
        try:
            record = directory.read_record()
        except DamagedRecord:
            continue
        run = _finished(record, study.name) if record else _running(directory, study.name)
        if run is not None and run.rows:
            yield run


def _finished(record: Record, study: str) -> TrackedRun:
    model = {name: getattr(record.model, name) for name in ("family", "params", "num_features")}
    origin = {name: getattr(record.environment, name) for name in ("commit", "torch", "accelerator", "cpu")}
    return TrackedRun(
        id=record.cell_id,
        name=record.directory,
        study=study,
        rows=tuple(rows(record.curve, record.horizons)),
        started=record.environment.time_start,
        status=record.status,
        config=_config(record.cell, model | origin),
    )


def _running(directory: CellDirectory, study: str) -> TrackedRun | None:
    state, cell = checkpoints.newest_state(directory.checkpoints), directory.read_cell()
    if state is None or cell is None:
        return None
    points = state.get("curve", [])
    keys = {"images": "images", "losses": "loss", "horizons": "horizon"}
    curve = LearningCurve(**{name: tuple(point[key] for point in points) for name, key in keys.items()})
    attempts = directory.attempt_log()
    return TrackedRun(
        id=directory.path.name.rpartition("-")[2],
        name=directory.path.name,
        study=study,
        config=_config(cell, {}),
        rows=tuple(rows(curve, [build(Horizon, row) for row in state["rows"]])),
        started=attempts[0].started if attempts else None,
    )


def _config(cell: Cell, more: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a cell (training run) as a flat dictionary, with the names of its evaluations under "tasks".

    Args:
        more: further entries; those that are None are left out.
    """
    values = to_json(cell)
    tasks = sorted({f"{task['task']}:{task['data']}" for task in values.pop("tasks")})
    recipe = {f"recipe.{name}": value for name, value in values.pop("recipe").items()}
    options = {f"model.{name}": value for name, value in values.pop("model_options")}
    return {**values, **recipe, **options, "tasks": tasks, **{k: v for k, v in more.items() if v is not None}}


def rows(curve: LearningCurve | None, horizons: Sequence[Horizon]) -> Iterator[Row]:
    """Yield rows of metrics: the losses of a cell (training run) in the order in which they were measured, and the
    scores at each horizon (a budget at which training is cooled down and evaluated) after the last loss of its
    cool-down.

    Args:
        curve: the losses; None if there are none.
        horizons: the evaluations at the horizons.
    """
    left = {horizon.images_seen: horizon for horizon in horizons}
    if 0 in left:
        yield _scores(left.pop(0))
    points = list(zip(curve.images, curve.losses, curve.horizons, strict=True)) if curve else []
    for place, (images, loss, horizon) in enumerate(points):
        yield {IMAGES: images, "loss" if horizon is None else f"loss/cool-down to {horizon}": loss}
        ends = place + 1 == len(points) or points[place + 1][2] != horizon
        if horizon is not None and ends and horizon in left:
            yield _scores(left.pop(horizon))
    yield from map(_scores, left.values())


def _scores(horizon: Horizon) -> Row:
    """Return a row of metrics for one horizon (the evaluation at a budget): scores averaged over few-shot samples, and
    the FLOPs, throughput and utilisation of training."""
    values = by_key(
        (f"{s.task}/{s.data}{f' {s.shots}-shot' if s.shots else ''} {s.metric}", s.value)
        for s in horizon.scores
        if s.value is not None
    )
    means = {name: sum(part) / len(part) for name, part in values.items()}
    more = {
        "training FLOPs": horizon.train_flops.dense,
        "images per second": horizon.images_per_second,
        "utilisation": horizon.utilisation,
    }
    return {IMAGES: horizon.images_seen, **means, **{name: value for name, value in more.items() if value is not None}}


def series_of(rows: Sequence[Row]) -> str:
    """Return a string that identifies rows of metrics: their number and a hash of their content."""
    return f"{len(rows)}:{hashlib.sha256(canonical([dict(row) for row in rows]).encode()).hexdigest()[:16]}"


def known_rows(run: TrackedRun, series: str | None) -> int | None:
    """Return how many of a run's rows a tracker already has; None if the tracker has rows that differ from the run's.

    Args:
        series: `series_of` the rows that were sent to the tracker; None if none were.
    """
    if series is None:
        return 0
    number = int(series.partition(":")[0])
    return number if series_of(run.rows[:number]) == series else None


# -- sending -----------------------------------------------------------------------------------------------------------


def send(study: Path, name: str, *, folder: Path | None = None, project: str = "") -> int:
    """Bring a tracker up to date with a study. Return how many of its runs changed.

    Args:
        study: folder of the study.
        name: name of the tracker.
        folder: where the tracker keeps its files, if it has any; None for the study's folder.
        project: name of the project in the tracker; "": the value of the tracker's own environment variable, or else
            the study's name.

    Raises:
        UserError: the tracker is unknown, its library is missing, or files cannot be written.
    """
    tracker, target = load(name), files.make_directory(folder or study)
    named = project or os.environ.get(tracker.project_variable, "") or study.name
    return tracker.write(runs_of(study), folder=target, project=named)


# -- which there are ---------------------------------------------------------------------------------------------------


def load(name: str) -> Tracker:
    """Return the tracker of this name.

    Raises:
        UserError: there is no such tracker, or its library is not installed.
    """
    tracker: Tracker = registry.load("tracker", name)
    if not installed(name):
        raise UserError(
            f"The tracker {name!r} needs the package {tracker.package}.", f"Install it: pip install {tracker.extra}."
        )
    return tracker


def chosen(names: Sequence[str]) -> tuple[str, ...]:
    """Return the names of the trackers that the user asks for, without repetitions.

    Args:
        names: what the user gave: names of trackers; "auto" means TensorBoard if it is installed, "none" means no
            tracker.

    Raises:
        UserError: see `load`.
    """
    usual = ("tensorboard",) if installed("tensorboard") else ()
    names_asked = dict.fromkeys(name for word in names for name in (usual if word == AUTO else (word,)) if word != NONE)
    for name in names_asked:
        if name not in usual:
            load(name)
    return tuple(names_asked)


def installed(name: str) -> bool:
    """Return whether the library of a tracker is installed."""
    return importlib.util.find_spec(registry.load("tracker", name).package) is not None
