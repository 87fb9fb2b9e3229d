"""Folders of a study: where each cell's spec, record, attempts and checkpoints lie."""

from __future__ import annotations

import itertools
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from bench import SCHEMA_VERSION
from bench.core import files
from bench.core.errors import UserError
from bench.core.record import Attempt, Record
from bench.core.registry import directory_name
from bench.core.spec import Cell, to_json
from bench.store import checkpoints, records

STORE_FILE = "store.json"
SPEC_FIELDS = frozenset(("schema", "cell"))
NUMBER = re.compile(r"[0-9]{1,9}")  # of an attempt
STATUS_FIELDS = frozenset(("started", "ended", "outcome"))


@dataclass(frozen=True)
class CellDirectory:
    """One cell's folder under `results/<suite>/cells/`."""

    path: Path

    @property
    def spec(self) -> Path:
        return self.path / "spec.json"

    @property
    def record(self) -> Path:
        return self.path / "record.json"

    @property
    def lease(self) -> Path:
        return self.path / "lease.json"

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def weights(self) -> Path:
        """Final weights of each horizon, kept when the study asks for them."""
        return self.path / "weights"

    def attempts(self) -> list[Path]:
        """Folders of every attempt so far, oldest first."""
        folder = self.path / "attempts"
        found = (p for p in folder.iterdir() if p.is_dir() and NUMBER.fullmatch(p.name)) if folder.is_dir() else ()
        return sorted(found, key=lambda p: int(p.name))

    def prepare(self, cell: Cell) -> None:
        """Create the folder and write spec.json, once. A damaged one is kept beside a new one."""
        files.make_directory(self.path)
        try:
            files.read_sealed(self.spec, legacy_fields=SPEC_FIELDS)
        except (OSError, ValueError):
            if self.spec.exists():
                os.replace(self.spec, self.spec.with_name(f"spec.damaged-{os.getpid()}.json"))
            files.write_sealed(self.spec, {"schema": SCHEMA_VERSION, "cell": to_json(cell)})

    def new_attempt(self) -> Path:
        """Create the folder of the next attempt, which is nobody else's, and remove what killed ones left half-written.

        Only for the holder of the lease.

        Raises:
            UserError: it cannot be created.
        """
        earlier = self.attempts()
        for folder in (self.path, self.checkpoints, self.weights, *earlier):
            files.remove_leftovers(folder, owned=True)
        folder = files.make_directory(self.path / "attempts")
        for number in itertools.count(1 + (int(earlier[-1].name) if earlier else 0)):
            try:
                (folder / f"{number:03d}").mkdir()
                break
            except FileExistsError:
                continue
            except OSError as error:
                raise files.explain(error, folder) from error
        files.sync_directory(folder)
        return folder / f"{number:03d}"

    def attempt_log(self) -> tuple[Attempt, ...]:
        """When each attempt began and ended, and how; oldest first. Why it failed stays out: that may name paths."""
        found = map(attempt_status, self.attempts())
        return tuple(Attempt(outcome=s["outcome"], started=s.get("started"), ended=s.get("ended")) for s in found)

    def read_record(self) -> Record | None:
        """The verified record, or None if there is none."""
        return records.read_record(self.record, of=self.path.name) if self.record.exists() else None

    def read_outcome(self) -> records.Outcome | None:
        """How the cell ended, from its verified record; None if there is none. Much quicker than the whole record."""
        try:
            return records.read_outcome(self.record, of=self.path.name)
        except (FileNotFoundError, NotADirectoryError):  # what is wrong with the folder shows when it is written to
            return None

    def set_aside_record(self) -> Path:
        """Move a damaged record out of the way, keeping it."""
        target = self.record.with_name(f"record.damaged-{os.getpid()}.json")
        os.replace(self.record, target)
        return target


def attempt_status(attempt: Path) -> dict[str, Any]:
    """status.json of an attempt; one that was killed before it wrote any, or whose file was damaged, has the outcome
    "unknown"."""
    try:
        return files.read_sealed(attempt / "status.json", legacy_fields=STATUS_FIELDS)
    except (OSError, ValueError):
        return {"outcome": "unknown"}


class State(NamedTuple):
    """How far a cell is.

    Attributes:
        name: "done" (also a diverged or out-of-memory result), "partial", "failed" (tried without a result), "missing",
            "damaged" (its record does not verify and will be set aside). All but "done" are run again.
        fraction: of its training that is done, in [0, 1]. note: why it is not complete, where that is known.
    """

    name: str
    fraction: float
    note: str | None


def state_of(directory: CellDirectory) -> State:
    """How far a cell is, from its files alone. Light enough to ask of thousands: neither torch nor NumPy is needed.

    Raises:
        UserError: its record is from a newer version of the project.
    """
    try:
        outcome = directory.read_outcome()
    except records.DamagedRecord as error:
        return State("damaged", 0.0, error.what)
    if outcome is not None:
        note = None if outcome.status == "complete" else f"{outcome.status}: {outcome.reason}"
        return State("failed", 0.0, note) if outcome.status == "failed" else State("done", 1.0, note)
    progress = checkpoints.newest_state(directory.checkpoints)
    last = attempt_status(attempts[-1]) if (attempts := directory.attempts()) else {}
    failed, reason = last.get("outcome") == "failed", last.get("reason")
    if progress is not None:
        fraction = progress["work"] / progress["total_work"] if progress["total_work"] else 0.0
        return State("failed", fraction, reason) if failed else State("partial", fraction, None)
    return State("failed", 0.0, reason) if failed else State("missing", 0.0, None)


@dataclass(frozen=True)
class Study:
    """`results/<suite>/`: the store of one suite."""

    path: Path

    @property
    def cells_path(self) -> Path:
        return self.path / "cells"

    def cell(self, cell: Cell) -> CellDirectory:
        return CellDirectory(self.cells_path / directory_name(cell))

    def directories(self) -> list[CellDirectory]:
        """Every cell folder there is, by name."""
        if not self.cells_path.exists():
            return []
        return [CellDirectory(p) for p in sorted(self.cells_path.iterdir()) if p.is_dir()]

    def check(self) -> None:
        """Refuse a store that a newer version wrote, before anything is done with it.

        Raises:
            UserError: newer schema, or store.json unreadable.
        """
        marker = self.path / STORE_FILE
        if self.path.exists() and not self.path.is_dir():
            raise UserError(f"{self.path} is a file, not a folder.", "Choose another folder with --results.")
        if not marker.exists():
            return
        damaged = UserError(f"{marker} is damaged.", "Delete this one file; the records are elsewhere.")
        try:
            match files.read_sealed(marker, legacy_fields=frozenset(("schema",))):
                case {"schema": int(version)}:
                    records.check_schema(marker, version)
                case _:
                    raise damaged
        except (OSError, ValueError) as error:
            raise damaged from error

    def create(self) -> None:
        """Make the folder and mark its schema.

        Raises:
            UserError: it cannot be written, or is from a newer version.
        """
        self.check()
        files.make_directory(self.path)
        if not (self.path / STORE_FILE).exists():
            files.write_sealed(self.path / STORE_FILE, {"schema": SCHEMA_VERSION})
        files.make_directory(self.cells_path)
