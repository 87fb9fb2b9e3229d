"""Reads the records of one suite. A damaged record is named and left out; a newer schema is refused."""

from __future__ import annotations

import contextlib
import gc
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from bench.analysis import processes
from bench.analysis.curves import curve_of
from bench.analysis.table import ScoreRows, join
from bench.core.errors import UserError
from bench.store import grid as plan
from bench.store.records import DamagedRecord, read_record

CHUNK = 250  # folders
MANY = 1_000  # records that the cyclic collector takes a noticeable time to walk


@dataclass(frozen=True, kw_only=True)
class Damaged:
    """A record that could not be used, and why."""

    directory: str
    reason: str


@dataclass(frozen=True, kw_only=True, eq=False)
class Records:
    """What a results folder holds.

    Attributes:
        suite: the suite's name.
        records: one dictionary per finished cell, ordered by directory name. `load` packs their learning curves.
        damaged: records that were left out, with reasons.
        unfinished: directories of cells that were begun and have no record.
        wanted: the grid that was asked for last; None where no run has written it down.
        scores: the records' scores as `table.score_table` gives them. `load` moves them here, out of the dictionaries:
            ten thousand records would not fit in memory otherwise. None: the dictionaries hold them.
    """

    suite: str
    records: tuple[dict[str, Any], ...]
    damaged: tuple[Damaged, ...] = ()
    unfinished: tuple[str, ...] = ()
    wanted: plan.WantedCells | None = None
    scores: pd.DataFrame | None = None

    @property
    def never_started(self) -> tuple[str, ...]:
        """Cells of the grid that left nothing on disk."""
        present = [record["directory"] for record in self.records] + [d.directory for d in self.damaged]
        return plan.never_started(self.wanted, [*present, *self.unfinished])


def load(directory: Path, *, suite: str | None = None) -> Records:
    """Read every record under `directory`/cells.

    Args:
        directory: `results/<suite>`.
        suite: its name; the folder's name by default.

    Raises:
        UserError: no such folder, or a record from a newer version of the project.
    """
    cells = directory / "cells"
    if not cells.is_dir():
        raise UserError(
            f"There are no results in {directory}.",
            "Run the suite first (python -m bench.run), or name the folder that holds its results with --results.",
        )
    folders = sorted(path for path in cells.iterdir() if path.is_dir())
    shared = _Shared()
    scores: list[pd.DataFrame] = []
    records: list[dict[str, Any]] = []
    damaged: list[Damaged] = []
    unfinished: list[str] = []
    with _uncollected():
        for part in processes.in_chunks(_read, folders, size=CHUNK):
            scores.append(part.scores.copy())  # the pool's thread made it, and its memory would serve that thread alone
            records += [shared.of(record) for record in part.records]
            damaged += part.damaged
            unfinished += part.unfinished
        if len(records) >= MANY:
            gc.freeze()  # records hold no cycles, and stay to the end: a tenth of a large report's time
    return Records(
        suite=suite or directory.name, records=tuple(records), damaged=tuple(damaged), unfinished=tuple(unfinished),
        wanted=plan.read(directory), scores=join(scores),
    )  # fmt: skip


@dataclass(kw_only=True)
class _Part:
    """What some of the folders hold."""

    scores: pd.DataFrame = field(default_factory=pd.DataFrame)
    records: list[dict[str, Any]] = field(default_factory=list)
    damaged: list[Damaged] = field(default_factory=list)
    unfinished: list[str] = field(default_factory=list)


@contextlib.contextmanager
def _uncollected() -> Iterator[None]:
    """Without the cyclic collector: it would walk every record again and again, and find nothing."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


def _read(folders: Sequence[Path]) -> _Part:
    """Some folders."""
    part, rows = _Part(), ScoreRows()
    with _uncollected():
        for folder in folders:
            _read_one(folder, part, rows)
        part.scores = rows.table()
    return part


def _read_one(folder: Path, part: _Part, rows: ScoreRows) -> None:
    path = folder / "record.json"
    if not path.exists():
        if (folder / "spec.json").exists():
            part.unfinished.append(os.fsencode(folder.name).decode(errors="replace"))  # a name need not be text
        return
    try:
        record = _complete(read_record(path, of=folder.name), folder.name)
    except DamagedRecord as error:
        reason = error.what.split(" is damaged: ", 1)[-1]  # without the path: a report names no machine's folders
        part.damaged.append(Damaged(directory=folder.name, reason=reason))
        return
    rows.take(record)
    record["curve"] = curve_of(record)
    part.records.append(record)


SHARED = ("revisions", "model", "data")
SHARED_OF_CELL = ("recipe", "tasks", "horizons", "axes")


class _Shared:
    """Makes equal parts of different records one object: a study repeats its recipes, tasks and data sets."""

    def __init__(self) -> None:
        self._known: dict[str, Any] = {}

    def of(self, record: dict[str, Any]) -> dict[str, Any]:
        """The record, its repeated parts replaced by the equal ones that were seen first."""
        for holder, names in ((record, SHARED), (record["cell"], SHARED_OF_CELL)):
            for name in names:
                if name in holder:
                    holder[name] = self._known.setdefault(repr(holder[name]), holder[name])
        return record


def _complete(record: dict[str, Any], directory: str) -> dict[str, Any]:
    """The record, if the fields that every table reads have the right types.

    Raises:
        DamagedRecord: a field is missing or of another type.
    """
    wanted: tuple[tuple[str, type], ...] = (("cell", dict), ("cost", dict), ("horizons", list))
    if record["status"] == "complete":  # a failed cell may have got no further than its name
        wanted += (("model", dict), ("data", dict))
    for name, kind in wanted:
        if not isinstance(record.get(name), kind):
            raise DamagedRecord(f"{directory} is damaged: field {name!r} is missing or of the wrong type.")
    for horizon in record["horizons"]:
        if not isinstance(horizon, dict) or "images_seen" not in horizon:
            raise DamagedRecord(f"{directory} is damaged: a horizon does not say how many images were seen.")
    return record

