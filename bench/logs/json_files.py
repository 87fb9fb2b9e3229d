"""Reader of JSON logs: one file per run, with its settings inside or in a file beside it; or one file of several
runs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.core.errors import UserError
from bench.logs.run import Run, flat, series_of

KIND = "JSON"
SETTINGS = ("config", "args", "hparams", "hyperparameters", "params", "settings", "model_config", "run_config")
RUNS = ("run", "run_id", "run_name", "trial", "trial_id", "experiment", "job")  # keys whose value names a row's run
STEPS = ("step", "_step", "global_step", "iteration", "iter", "update", "epoch")
MAX_BYTES = 256 << 20  # largest file that is read


def read(place: Path) -> list[Run]:
    """Return the runs of all JSON files below a folder. A `config.json` or the like (SETTINGS) beside a log holds the
    log's settings."""
    paths = sorted([*place.rglob("*.jsonl"), *place.rglob("*.json")])
    logs = [path for path in paths if path.stem not in SETTINGS]
    alike = len({path.name for path in logs}) == 1
    made = list[Run]()
    for path in logs:
        beside = [path.with_name(f"{stem}.json") for stem in SETTINGS]
        settings = {name: value for other in beside if other.is_file() for name, value in flat(_object(other)).items()}
        name = (path.parent if alike or path.stem == "metrics" else path.with_suffix("")).relative_to(place).as_posix()
        made += runs_of(_parsed(path), place.name if name == "." else name, settings)
    return made


def read_file(path: Path) -> list[Run] | None:
    """Return the runs in one file; None if it is not JSON, or if it is a plain table, whose rows do not name the run
    that they belong to."""
    if path.suffix not in (".json", ".jsonl"):
        return None
    found = _parsed(path)
    if isinstance(found, list):
        return _told_apart(found, {})
    return runs_of(found, path.stem, {})


def runs_of(found: Any, name: str, settings: Mapping[str, Any]) -> list[Run]:
    """Return the runs in the parsed JSON `found`:

    - A list of objects is the log of one run, or of several if its rows name their runs.
    - An object that contains a list of objects is one run with this log if the objects have steps; otherwise each
      object of the list is a run.
    - An object of which all values are objects is several runs, one for each value.
    - Lists of numbers in an object are the series of one run.

    Args:
        name: name of the run, if there is only one; else the beginning of the runs' names where none is given.
        settings: settings from files beside this one, which apply to every run.
    """
    if isinstance(found, list):
        rows = [row for row in found if isinstance(row, Mapping)]
        apart = _told_apart(rows, settings)
        return apart if apart is not None else [_run(name, rows, settings)]
    inner = {key: value for key, value in found.items() if _are_objects(value)}
    if found and all(isinstance(value, Mapping) for value in found.values()) and not {*found} & {*SETTINGS}:
        return [run for key, value in found.items() for run in runs_of(value, str(key), settings)]
    own = {**settings, **flat({key: value for key, value in found.items() if key not in SETTINGS})}
    own |= {
        name: value
        for key in SETTINGS
        if isinstance(found.get(key), Mapping)
        for name, value in flat(found[key]).items()
    }
    rows = max(inner.values(), key=len, default=[])
    if rows and not any(name in row for row in rows for name in STEPS):
        apart = _told_apart(rows, own)
        return apart or [
            Run(name=f"{name} {at}", settings={**own, **flat(row)}) for at, row in enumerate(rows, start=1)
        ]
    numbers = {key: value for key, value in found.items() if _are_numbers(value)}
    if numbers and not rows:
        steps = next((numbers[key] for key in STEPS if key in numbers), None)
        series = {
            key: list(zip(map(float, steps or range(len(v))), map(float, v), strict=False))
            for key, v in numbers.items()
        }
        return [Run(name=name, settings=own, series=series)]
    return [_run(name, rows, own)]


def _run(name: str, rows: list[Mapping[str, Any]], settings: Mapping[str, Any]) -> Run:
    """Return one run made from the rows of its log: numbers become series; texts and truth values become settings, in
    addition to `settings`."""
    words = {key: value for row in rows for key, value in flat(row).items() if isinstance(value, str | bool)}
    return Run(name=name, settings={**settings, **words}, series=series_of(rows, STEPS))


def _told_apart(rows: list[Any], settings: Mapping[str, Any]) -> list[Run] | None:
    """Return the runs of rows that name the run they belong to (RUNS), if some run has several rows; None otherwise.
    `settings` apply to every run."""
    for key in RUNS:
        names = [row.get(key) for row in rows if isinstance(row, Mapping)]
        if names and None not in names and len({*map(str, names)}) < len(names):
            of: dict[str, list[Mapping[str, Any]]] = {}
            for row in rows:
                of.setdefault(str(row[key]), []).append(row)
            return [_run(name, each, settings) for name, each in of.items()]
    return None


def _are_objects(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(one, Mapping) for one in value)


def _are_numbers(value: Any) -> bool:
    return isinstance(value, list) and len(value) > 1 and all(isinstance(one, int | float) for one in value)


def _object(path: Path) -> dict[str, Any]:
    found = _parsed(path)
    return found if isinstance(found, dict) else {}


def _parsed(path: Path) -> Any:
    """Return the JSON value of a file, or the list of values if it has one on each line.

    Raises:
        UserError: the file has neither form, or is too large.
    """
    if path.stat().st_size > MAX_BYTES:
        raise UserError(f"{path} is larger than {MAX_BYTES >> 20} MiB.", "Give fewer rows of it.")
    text = path.read_text(encoding="utf-8-sig")
    try:
        return json.loads(text)
    except ValueError:
        try:
            return [json.loads(line) for line in text.splitlines() if line.strip()]
        except (ValueError, RecursionError) as error:
            what = f"{path} is neither JSON nor one JSON object per line: {error}"
            raise UserError(what, "Move it away, or repair it.") from error
