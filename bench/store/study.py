"""The folder layout of a study: spec, record, attempts and checkpoints of each cell."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import os
import re
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from bench import SCHEMA_VERSION
from bench.core import files
from bench.core.cell_state import CellState
from bench.core.errors import UserError
from bench.store import checkpoints, records
from bench.store.lease import LeaseLost, claim
from bench.study.cell import Cell, cell_from_json, to_json
from bench.study.fingerprint import NOTHING_KNOWN, Basis, Fingerprint
from bench.study.record import Attempt, Record
from bench.study.registry import directory_name

STORE_FILE = "store.json"
WEIGHTS = "final.safetensors"  # of the last horizon: in the attempt's folder, and in `weights/` once there is a record
ENERGY = "energy.json"  # of an attempt, where its energy was counted
INSPECTED = "inspect"  # figures of the inside of models, in a study's folder
SPEC_FIELDS = frozenset(("schema", "cell"))
NUMBER = re.compile(r"[0-9]{1,9}")  # of an attempt
STATUS_FIELDS = frozenset(("started", "ended", "outcome"))
MOST_KILLS = 2  # of a cell's processes in one run: then it is given up in that run, so that the others are done
KILLED = f"Its process was killed {MOST_KILLS} times in one run; is memory short?"


class StoreGone(UserError):
    """The study's folder is no longer the one that work began in: nothing more is written below its path."""


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
        """The folder of the final weights, those of the last horizon."""
        return self.path / "weights"

    def attempts(self) -> list[Path]:
        """Folders of every attempt so far, oldest first."""
        folder = self.path / "attempts"
        found = (p for p in folder.iterdir() if p.is_dir() and NUMBER.fullmatch(p.name)) if folder.is_dir() else ()
        return sorted(found, key=lambda p: int(p.name))

    def prepare(self, cell: Cell, basis: Basis = NOTHING_KNOWN, *, parents: bool = True) -> None:
        """Create the folder and write spec.json, once. A damaged one is kept beside a new one; results of other code,
        or of other images, are set aside. Only for the holder of the lease.

        Args:
            basis: of what it is trained now.
            parents: whether the study's folder is made too where it is missing; a worker never does.
        """
        files.make_directory(self.path, parents=parents)
        try:
            files.read_sealed(self.spec, legacy_fields=SPEC_FIELDS)
        except (OSError, ValueError):
            if self.spec.exists():
                self.set_aside(self.spec)
            self._write_spec(to_json(cell), basis)
            return
        then = self.basis()
        if not then.agrees(basis):
            if self.record.exists():
                same_code = then.agrees(Basis(code=basis.code))
                self.set_aside(self.record, as_what="other-images" if same_code else "other-code")
            checkpoints.clear(self.checkpoints)
            self._write_spec(to_json(cell), basis)

    def read_cell(self) -> Cell | None:
        """The cell's specification, from spec.json; None where that does not verify."""
        try:
            return cell_from_json(files.read_sealed(self.spec, legacy_fields=SPEC_FIELDS)["cell"])
        except (OSError, ValueError, KeyError, UserError):
            return None

    def basis(self) -> Basis:
        """The code and the images that the results here are valid for, as far as spec.json says."""
        try:
            stated = files.read_sealed(self.spec, legacy_fields=SPEC_FIELDS)
        except (OSError, ValueError):
            return NOTHING_KNOWN
        code = None
        match stated.get("code"):
            case {"digest": str(digest), "modules": dict(modules)}:
                code = Fingerprint(digest=digest, modules=modules)
        return Basis(code=code, images=stated.get("images", {}))

    def accept(self, now: Basis) -> None:
        """Record in spec.json that the results here are valid for this code and these images."""
        self._write_spec(files.read_sealed(self.spec, legacy_fields=SPEC_FIELDS)["cell"], now)

    def _write_spec(self, cell: dict[str, Any], basis: Basis) -> None:
        stated = {name: value for name, value in dataclasses.asdict(basis).items() if value}
        files.write_sealed(self.spec, {"schema": SCHEMA_VERSION, "cell": cell} | stated)

    def new_attempt(self) -> Path:
        """Create the folder of the next attempt, exclusively, and remove half-written files of killed attempts.

        Only for the holder of the lease.

        Raises:
            UserError: it cannot be created.
        """
        earlier = self.attempts()
        files.remove_leftovers(self.path, self.checkpoints, self.weights, *earlier, owned=True)
        folder = files.make_directory(self.path / "attempts", parents=False)
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

    def give_up(self) -> None:
        """State of the newest attempt that it was killed once too often. Only for the holder of the lease.

        Raises:
            UserError: that cannot be written.
        """
        last = self.attempts()[-1]
        stated = attempt_status(last) | {"outcome": "failed", "reason": KILLED, "killed": True, "again": False}
        files.write_sealed(last / "status.json", stated)

    def attempt_log(self, *, up_to: Path | None = None) -> tuple[Attempt, ...]:
        """When each attempt began and ended, and how; oldest first. Why it failed stays out: that may name paths."""
        stated = [
            attempt_status(path) for path in self.attempts() if up_to is None or int(path.name) <= int(up_to.name)
        ]
        return tuple(Attempt(outcome=s["outcome"], started=s.get("started"), ended=s.get("ended")) for s in stated)

    def read_record(self) -> Record | None:
        """The verified record, or None if there is none."""
        return records.read_record(self.record, of=self.path.name) if self.record.exists() else None

    def read_outcome(self) -> records.Outcome | None:
        """How the cell ended, from its verified record; None if there is none. Much quicker than the whole record."""
        try:
            return records.read_outcome(self.record, of=self.path.name)
        except (FileNotFoundError, NotADirectoryError):  # what is wrong with the folder shows when it is written to
            return None

    def set_aside(self, path: Path, *, as_what: str = "damaged") -> Path:
        """Move a file of this folder out of the way, keeping it.

        Raises:
            UserError: it cannot be moved.
        """
        target = path.with_name(f"{path.stem}.{as_what}-{secrets.token_hex(4)}{path.suffix}")
        try:
            os.replace(path, target)
        except OSError as error:
            why = files.explain(error, path)
            raise UserError(f"A {as_what} file cannot be set aside. {why.what}", why.fix) from error
        return target

    # -- publishing a result -------------------------------------------------------------------------------------------

    def is_done(self) -> bool:
        """Whether there is a valid record (a record of a failure does not count). A damaged one is moved aside.

        Raises:
            UserError: it cannot be; or it is from a newer version.
        """
        try:
            outcome = self.read_outcome()
        except records.DamagedRecord:
            self.set_aside(self.record)
            return False
        return outcome is not None and outcome.status != "failed"

    def is_settled(self, basis: Basis) -> bool:
        """Whether there is a valid result of this code and these images, and nothing left to tidy up. Asked without the
        lease: what is not settled has to be looked at with it.

        Raises:
            UserError: the record is from a newer version.
        """
        try:
            outcome = self.read_outcome()
            if outcome is None or outcome.status == "failed" or self._left_behind():
                return False
            files.read_sealed(self.spec, legacy_fields=SPEC_FIELDS)
        except (records.DamagedRecord, OSError, ValueError):
            return False
        return self.basis().agrees(basis)

    def check_attempt(self, attempt: Path) -> None:
        """Make sure that an attempt is the newest, and that the cell has no result yet.

        Raises:
            LeaseLost: another runner has begun or finished the cell since.
        """
        if self.is_done():
            raise LeaseLost("another runner has finished the run")
        if self.attempts()[-1] != attempt:
            raise LeaseLost("another runner has begun the run anew")

    def publish(self, record: Record) -> None:
        """Write the record, which ends the cell. `settle` then puts its weights in place and removes its checkpoints.

        Raises:
            LeaseLost: another runner has finished the run; its record is kept.
            UserError: the disk is full, ….
        """
        if not self.is_done():
            self._remove_failed_record()
        try:
            records.write_record(self.record, record, new=True)
        except FileExistsError as error:
            raise LeaseLost("another runner has finished the run") from error

    def _remove_failed_record(self) -> None:
        aside = files.temporary_name(self.record)
        with contextlib.suppress(FileNotFoundError):
            with contextlib.suppress(FileNotFoundError):  # a network file system may answer twice
                os.rename(self.record, aside)
            if records.read_outcome(aside).status != "failed":  # another has just put it there
                with contextlib.suppress(FileExistsError):
                    files.link_new(aside, self.record)
            aside.unlink()

    def tidy(self) -> None:
        """Remove what a kill after the record left of a finished cell, unless another runner is at it.

        Raises:
            UserError: the weights cannot be put in their place.
        """
        if self._left_behind():
            with claim(self.lease, finished=True) as held:
                if held is not None:
                    self.settle()
                    files.remove_leftovers(self.path, *self.attempts(), owned=True)

    def _left_behind(self) -> bool:
        """Whether a finished cell has what belongs to an unfinished one."""
        left = [
            path for name in (".*.tmp", "attempts/*/.*.tmp", f"attempts/*/{WEIGHTS}") for path in self.path.glob(name)
        ]
        return any(path.exists() for path in (self.lease, self.checkpoints, *left))

    def settle(self) -> None:
        """After the record: the weights of the attempt that it names take their place; checkpoints and weights of other
        attempts go. The next run does what a kill left undone here.

        Raises:
            UserError: the weights cannot be put in their place.
        """
        attempts = self.attempts()
        kept = [path for path in attempts if (path / WEIGHTS).exists()]
        if kept and (record := self.read_record()) is not None:
            own = attempts[: len(record.attempts)][-1:]  # a record lists every attempt up to its own
            for attempt in kept:
                if attempt in own:
                    files.make_directory(self.weights, parents=False)
                    files.move(attempt / WEIGHTS, self.weights / WEIGHTS)
                else:
                    (attempt / WEIGHTS).unlink(missing_ok=True)
        checkpoints.clear(self.checkpoints)


def attempt_status(attempt: Path) -> dict[str, Any]:
    """status.json of an attempt; one that was killed before it wrote any, or whose file was damaged, has the outcome
    "unknown"."""
    try:
        return files.read_sealed(attempt / "status.json", legacy_fields=STATUS_FIELDS)
    except (OSError, ValueError):
        return {"outcome": "unknown"}


def was_killed(status: dict[str, Any]) -> bool:
    """Whether the attempt of this status ended without saying how, or because a process of it did. One that still runs
    looks the same: the holder of the lease can tell."""
    return status["outcome"] in ("running", "unknown") or status.get("killed") is True


class State(NamedTuple):
    """How far a cell is.

    Attributes:
        name: the state.
        fraction: of its training that is done, in [0, 1].
        note: why it is not complete, where that is known.
        without_result: how a cell that is done ended without a result: "diverged" or "oom"; None of others.
        reason: why it diverged, or ran out of memory.
        deadly: whether its last processes were all killed, so often that it may end the next one too.
        took: wall-clock and processor seconds of a complete cell, as far as its record knows them.
    """

    name: CellState
    fraction: float
    note: str | None
    took: tuple[float | None, float | None] = (None, None)
    without_result: str | None = None
    reason: str | None = None
    deadly: bool = False


def state_of(directory: CellDirectory) -> State:
    """How far a cell is, from its files alone. Light enough to ask of thousands: neither torch nor NumPy is needed.

    Raises:
        UserError: its record is from a newer version of the project.
    """
    try:
        outcome = directory.read_outcome()
    except records.DamagedRecord as error:
        return State(CellState.DAMAGED, 0.0, error.what)
    if outcome is not None:
        if outcome.status == "complete":
            return State(CellState.DONE, 1.0, None, (outcome.seconds, outcome.processor_seconds))
        note = f"{outcome.status}: {outcome.reason}"
        if outcome.status == "failed":
            return State(CellState.FAILED, 0.0, note)
        return State(CellState.DONE, 1.0, note, without_result=outcome.status, reason=outcome.reason)
    progress = checkpoints.newest_state(directory.checkpoints)
    latest = [attempt_status(path) for path in directory.attempts()[-MOST_KILLS:]]
    last = latest[-1] if latest else {}
    failed, reason = last.get("outcome") == "failed", last.get("reason")
    deadly = len(latest) == MOST_KILLS and all(map(was_killed, latest))
    if progress is not None:
        fraction = progress["work"] / progress["total_work"] if progress["total_work"] else 0.0
        name = CellState.FAILED if failed else CellState.PARTIAL
    else:
        fraction, name = 0.0, CellState.FAILED if failed else CellState.MISSING
    return State(name, fraction, reason if failed else None, deadly=deadly)


@dataclass(frozen=True)
class Identity:
    """What tells a study's folder from another one at the same path.

    Attributes:
        token: from its store.json; None where an earlier version wrote that.
        device, number: of the folder. A copy of the study has its token, below a mount point for example.
    """

    token: str | None
    device: int
    number: int


@dataclass(frozen=True)
class Study:
    """`results/<suite>/`: the store of one suite."""

    path: Path

    def identity(self) -> Identity:
        """What the folder is known by from now on.

        Raises:
            StoreGone: there is no study here.
        """
        try:
            there = os.stat(self.path)
            os.stat(self.cells_path)
            stated = files.read_sealed(self.path / STORE_FILE, legacy_fields=frozenset(("schema",)))
        except (OSError, ValueError) as error:
            raise self._gone("is not there (any more)") from error
        return Identity(token=stated.get("token"), device=there.st_dev, number=there.st_ino)

    def check_is(self, known: Identity) -> None:
        """Make sure that this is still the folder that was known by this: not what lies below a mount point, nor a
        folder of the same name that was made since.

        Raises:
            StoreGone: it is not.
        """
        if self.identity() != known:
            raise self._gone("is another folder than the one that the run began in")

    def _gone(self, what: str) -> StoreGone:
        return StoreGone(
            f"The study {self.path} {what}: nothing more is written there.",
            "See whether its file system is mounted and nobody has moved or removed it; then run the same command.",
        )

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

    def traces(self) -> list[Path]:
        """Files that torch.profiler left (`--profile`), by cell."""
        return sorted(self.cells_path.glob("*/attempts/*/trace/*.pt.trace.json"))

    def check(self) -> None:
        """Refuse a store that a newer version wrote, or that has links, before anything is done with it.

        Raises:
            UserError: newer schema, store.json unreadable, or a folder in it is a link.
        """
        marker = self.path / STORE_FILE
        if self.path.exists() and not self.path.is_dir():
            raise UserError(f"{self.path} is a file, not a folder.", "Choose another folder with --results.")
        self._refuse_links()
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

    def _refuse_links(self) -> None:
        """Files written into a folder that is a link, or removed from it, lie elsewhere. git and tar keep links."""
        for folder in (self.path, self.cells_path, *self.cells_path.glob("*"), *self.cells_path.glob("*/attempts")):
            for entry in files.entries(folder):
                if entry.is_symlink() and entry.is_dir():
                    raise UserError(
                        f"{entry.path} is a link to a folder: runs and reports would write and remove files there.",
                        "Put the folder itself there, or choose another one with --results, which may be a link.",
                    )

    def create(self) -> None:
        """Create the folder and write its schema version.

        Raises:
            UserError: it cannot be written, or is from a newer version.
        """
        self.check()
        files.make_directory(self.path)
        files.remove_leftovers(self.path)
        if not (self.path / STORE_FILE).exists():
            new = {"schema": SCHEMA_VERSION, "token": secrets.token_hex(16)}
            with contextlib.suppress(FileExistsError):  # of two runs that begin at once, one names it
                files.write_new(self.path / STORE_FILE, files.sealed(new))
        files.make_directory(self.cells_path)
