"""Reader of MLflow's store, a folder `mlruns` or an SQLite database. The package mlflow is not needed."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.core.errors import UserError
from bench.logs.run import Run

KIND = "MLflow"
MAGIC = b"SQLite format 3\0"
FINISHED = "FINISHED"
STATES = {"1": "RUNNING", "2": "SCHEDULED", "3": FINISHED, "4": "FAILED", "5": "KILLED"}  # numbers in meta.yaml
QUERIES = {
    "runs": "SELECT run_uuid, name, status FROM runs WHERE lifecycle_stage = 'active' ORDER BY start_time, run_uuid",
    "params": "SELECT run_uuid, key, value FROM params",
    "metrics": "SELECT run_uuid, key, step, value FROM metrics WHERE is_nan = 0 ORDER BY step, timestamp",
}


def is_store(place: Path) -> bool:
    """Whether a folder is an MLflow store that holds a run."""
    return next(_folders(place), None) is not None


def _folders(place: Path) -> Iterator[Path]:
    """Yield the folders of the runs at a path, which may be a whole store, one experiment or one run."""
    for pattern in ("*/*/meta.yaml", "*/meta.yaml", "meta.yaml"):
        yield from (path.parent for path in sorted(place.glob(pattern)) if (path.parent / "metrics").is_dir())


def read(place: Path) -> list[Run]:
    """Return the runs in an MLflow store that is a folder, except runs that were deleted. `place`: the folder of the
    store, of an experiment or of a run."""
    made = []
    for folder in dict.fromkeys(_folders(place)):
        about = dict(
            re.findall(r"^(\w+): *'?(.*?)'?$", (folder / "meta.yaml").read_text(encoding="utf-8"), re.MULTILINE)
        )
        if about.get("lifecycle_stage", "active") != "active" or ".trash" in folder.parts:
            continue
        params = {
            _name(folder / "params", path): _typed(path.read_text(encoding="utf-8"))
            for path in _files(folder / "params")
        }
        series = {_name(folder / "metrics", path): _series(path) for path in _files(folder / "metrics")}
        state = STATES.get(about.get("status", "3")) or about["status"]
        name = about.get("run_name") or folder.name
        made.append(Run(name=name, settings=params, series=series, status="" if state == FINISHED else state.lower()))
    return made


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file()) if folder.is_dir() else []


def _name(folder: Path, path: Path) -> str:
    return path.relative_to(folder).as_posix()


def _series(path: Path) -> list[tuple[float, float]]:
    """Return (step, value) for each line "time value step" of a file. If a line has no step, the line's number is
    taken, from 0."""
    rows = (line.split() for line in path.read_text(encoding="utf-8").splitlines())
    return [
        (float(row[2]) if len(row) > 2 else number, float(row[1])) for number, row in enumerate(rows) if len(row) > 1
    ]


def _typed(text: str) -> Any:
    """Return a parameter, which MLflow stores as text, as an int or a float if the text is one, else unchanged."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def is_database(path: Path) -> bool:
    """Whether a file is an SQLite database."""
    with path.open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC


def read_database(path: Path) -> list[Run]:
    """Return the runs in an MLflow database, except deleted ones. The database is opened read-only.

    Raises:
        UserError: the file is not a database of MLflow.
    """
    try:
        connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)
        try:
            runs, params, metrics = (connection.execute(query).fetchall() for query in QUERIES.values())
        finally:
            connection.close()
    except sqlite3.Error as error:
        raise UserError(f"{path} is no store of MLflow: {error}.", "Name mlflow.db, or the folder mlruns.") from error
    settings: dict[str, dict[str, Any]] = {}
    series: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for run, name, value in params:
        settings.setdefault(run, {})[name] = _typed(value)
    for run, name, step, value in metrics:
        series.setdefault(run, {}).setdefault(name, []).append((float(step), float(value)))
    return [
        Run(
            name=name or run,
            settings=settings.get(run, {}),
            series=series.get(run, {}),
            status="" if status == FINISHED else str(status).lower(),
        )
        for run, name, status in runs
    ]
