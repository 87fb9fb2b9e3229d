"""Reader of Weights & Biases: runs on its server, local files of runs (offline or not), and CSV files exported from its
web page.

The file `run-ID.wandb` is a log of records in LevelDB's log format (blocks of 32 KiB; each piece of a record has a
checksum, a length and a kind). Each record is a protobuf message that the package `wandb` defines.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from bench.core.errors import UserError
from bench.laws import runs_table
from bench.logs.run import Run, flat, series_of

KIND = "Weights & Biases"
PATTERN = "*.wandb"
# bytes of the file's header and of a block; the header of a piece: checksum, length, kind
HEADER, BLOCK, PIECE = 7, 32_768, struct.Struct("<IHB")
WHOLE, LAST = 1, 4  # kinds of pieces that end a record
PREFIX = "wandb:"
CHART = re.compile(r"^(?P<run>.+) - (?P<series>.+?)(?P<end>__MIN|__MAX)?$")
EXPORTED = {"Name", "State"}  # columns that the table of runs has when it is exported from the web page
FINISHED = ("finished", "")
STEPS = ("_step", "step", "global_step")


def read(place: Path) -> list[Run]:
    """Return the runs whose files lie below a folder, or the run of one file. The parts of a resumed run are joined."""
    from wandb.proto import wandb_internal_pb2

    paths = sorted(path for path in place.rglob(PATTERN) if not path.parent.is_symlink()) if place.is_dir() else [place]
    made: dict[str, Run] = {}
    for path in paths:
        settings: dict[str, Any] = {}
        rows, name, key, code = list[dict[str, Any]](), path.stem, path.stem, None
        for data in records(path):
            record = wandb_internal_pb2.Record.FromString(data)
            kind = record.WhichOneof("record_type")
            if kind == "run":
                name, key = record.run.display_name or name, record.run.run_id or key
                settings |= _items(record.run.config.update)
            elif kind == "config":
                settings |= _items(record.config.update)
            elif kind == "history":
                rows.append(_items(record.history.item))
            elif kind == "exit":
                code = record.exit.exit_code
        earlier = made.get(key)
        settings = {name: value for name, value in flat(settings).items() if not name.startswith("_wandb")}
        series = {tag: values for tag, values in series_of(rows, STEPS).items() if not tag.startswith("_")}
        if earlier is not None:
            series = {tag: [*earlier.series.get(tag, ()), *series.get(tag, ())] for tag in {*earlier.series, *series}}
        status = "" if code == 0 else "no end is logged" if code is None else f"ended with {code}"
        made[key] = Run(name=name, settings=settings, series=series, status=status)
    return list(made.values())


def records(path: Path) -> Iterator[bytes]:
    """Yield the records of a .wandb file, each an encoded protobuf message. An incomplete record at the end, left by a
    killed run, is ignored.

    Raises:
        UserError: the file is not a log of Weights & Biases.
    """
    data = path.read_bytes()
    if data[:4] != b":W&B":
        raise UserError(f"{path} is no log of Weights & Biases.", "Name the folder wandb, or an exported CSV.")
    at, parts = HEADER, b""
    while at + PIECE.size <= len(data):
        if (left := BLOCK - at % BLOCK) < PIECE.size:
            at += left
            continue
        _, size, kind = PIECE.unpack_from(data, at)
        piece = data[at + PIECE.size : at + PIECE.size + size]
        at += PIECE.size + size
        if not kind or len(piece) < size:
            return
        parts += piece
        if kind in (WHOLE, LAST):
            yield parts
            parts = b""


def _items(items: Any) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for item in items:
        value = json.loads(item.value_json)
        made[item.key or ".".join(item.nested_key)] = value
    return made


def from_server(name: str) -> list[Run]:
    """Return the runs of `name`, "wandb:ENTITY/PROJECT". Each series has one value, the summary that the server keeps
    of it.

    Raises:
        UserError: the server cannot be reached, or refuses the key or the name.
    """
    import wandb

    try:
        found = list(wandb.Api().runs(name.removeprefix(PREFIX)))
    except Exception as error:  # the package has no common class for errors of the network, the key and the name
        what = f"{name} cannot be read from Weights & Biases: {' '.join(str(error).split())}"
        raise UserError(what, "Write wandb:ENTITY/PROJECT, and set WANDB_API_KEY.") from error
    made = []
    for run in found:
        settings = {key: value for key, value in flat(dict(run.config)).items() if not key.startswith("_")}
        last = {key: value for key, value in flat(dict(run.summary)).items() if not key.startswith("_")}
        made.append(Run(name=run.name, settings=settings, series=series_of([last], ()), status=_status(run.state)))
    return made


def _status(state: str) -> str:
    return "" if state in FINISHED else state


def exported(path: Path) -> list[Run] | None:
    """Return the runs of a CSV file that was exported from the web page of Weights & Biases: a chart, with a column per
    run and series, or the table of runs, with a row per run. None for any other table."""
    with path.open(encoding="utf-8-sig", errors="replace") as file:
        header = file.readline()
    if "__MIN" not in header and not all(name in header for name in EXPORTED):
        return None
    made = runs_table.read(path)
    if "__MIN" in header:
        return _chart(made)
    if EXPORTED - {*made.columns}:
        return None
    runs = []
    for number, row in enumerate(made.to_dict("records"), start=1):
        values = {str(name): value for name, value in row.items() if name not in EXPORTED and value == value}
        name = str(row["Name"]) if row["Name"] == row["Name"] else f"row {number}"
        runs.append(Run(name=name, settings=values, status=_status(str(row["State"]))))
    return runs


def _chart(made: pd.DataFrame) -> list[Run]:
    first = str(made.columns[0])
    runs: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for column in made.columns[1:]:
        match = CHART.match(str(column))
        if match is None or match["end"]:
            continue
        known = made[[first, column]].dropna()
        series = list(zip(known[first].astype(float), known[column].astype(float), strict=True))
        runs.setdefault(match["run"], {})[match["series"]] = series
        runs[match["run"]].setdefault(first, [(step, step) for step, _ in series])
    return [Run(name=name, series=series) for name, series in runs.items()]
