"""Reads the logs of any experiment tracker that is known: finds out which one wrote the logs at a path, and calls its
reader."""

from __future__ import annotations

from pathlib import Path

from bench.core.errors import UserError
from bench.core.formatting import join
from bench.logs import json_files, mlflow, tensorboard, wandb
from bench.logs.run import Logs, Run

KNOWN = "a folder of TensorBoard, wandb or mlruns; files of JSON"


def read(place: Path) -> Logs | None:
    """Return the runs in the logs at a path, or on a server at "wandb:ENTITY/PROJECT". None if there is no such file,
    or if it is itself a table of runs.

    Raises:
        UserError: a folder holds no logs of a known kind, or a reader fails.
    """
    if str(place).startswith(wandb.PREFIX):
        return _logs(place, wandb.KIND, wandb.from_server(str(place)))
    if place.is_dir():
        return _folder(place)
    if not place.is_file():
        return None  # the reader of tables reports that the file is missing
    if place.suffix == ".wandb":
        return _logs(place, wandb.KIND, wandb.read(place))
    if ".tfevents" in place.name:
        return _logs(place, tensorboard.KIND, tensorboard.read(place))
    if mlflow.is_database(place):
        return _logs(place, mlflow.KIND, mlflow.read_database(place))
    if (runs := json_files.read_file(place)) is not None:
        return _logs(place, json_files.KIND, runs)
    if place.suffix == ".csv" and (runs := wandb.exported(place)) is not None:
        return _logs(place, f"exported by {wandb.KIND}", runs)
    return None


def _folder(place: Path) -> Logs:
    stores = [path for path in (place / "mlflow.db", place / "mlruns") if path.exists()]
    if mlflow.is_store(place):
        return _logs(place, mlflow.KIND, mlflow.read(place))
    for reader in (wandb, tensorboard):
        if next(place.rglob(reader.PATTERN), None) is not None:
            return _logs(place, reader.KIND, reader.read(place))
    for path in stores:
        return _logs(path, mlflow.KIND, mlflow.read(path) if path.is_dir() else mlflow.read_database(path))
    if next((path for ending in ("*.jsonl", "*.json") for path in place.rglob(ending)), None) is not None:
        return _logs(place, json_files.KIND, json_files.read(place))
    tables = sorted(path.name for path in place.glob("*.csv"))
    fix = f"Name a table in it: {join(tables[:3])}." if tables else f"Name {KNOWN}; or a CSV with one run per row."
    raise UserError(f"{place} holds no logs of runs.", fix)


def _logs(place: Path, kind: str, runs: list[Run]) -> Logs:
    if not any(run.settings or run.series for run in runs):
        raise UserError(f"{place} ({kind}) holds no run.", f"Name {KNOWN}.")
    return Logs(where=str(place), kind=kind, runs=tuple(runs))
