"""The folders of a study and of its cells: specification, record, attempts and checkpoints of each cell.

A cell is a training run with its evaluations. Several processes may want to work on it: the one that holds the cell's
lease (`bench.store.lease`) may write in its folder. Each time that a process works on the cell is an attempt.
"""

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
WEIGHTS = "final.safetensors"  # weights at the last horizon: in the attempt's folder, then in `weights/`: see `settle`
ENERGY = "energy.json"  # energy of an attempt, in its folder, where it was measured
INSPECTED = "inspect"  # subfolder of a study with figures of the inside of models, which `bench.report --cell` draws
SPEC_FIELDS = frozenset(("schema", "cell"))
NUMBER = re.compile(r"[0-9]{1,9}")  # name of an attempt's folder
STATUS_FIELDS = frozenset(("started", "ended", "outcome"))
MOST_KILLS = 2  # number of kills of a cell's processes after which a run gives up the cell and goes on with others
KILLED = f"Its process was killed {MOST_KILLS} times in one run; is memory short?"


class StoreGone(UserError):
    """Raised when the folder at a study's path is no longer the one in which the run began. Nothing more is written
    there."""


@dataclass(frozen=True)
class CellDirectory:
    """The folder of one cell (a training run with its evaluations), under `results/<suite>/cells/`, and the files in
    it. `path`: path of the folder."""

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
        """The folder for the final weights, which are the weights at the last horizon (budget)."""
        return self.path / "weights"

    def attempts(self) -> list[Path]:
        """Return the folders of all attempts so far, oldest first."""
        folder = self.path / "attempts"
        found = (p for p in folder.iterdir() if p.is_dir() and NUMBER.fullmatch(p.name)) if folder.is_dir() else ()
        return sorted(found, key=lambda p: int(p.name))

    def prepare(self, cell: Cell, basis: Basis = NOTHING_KNOWN, *, parents: bool = True) -> None:
        """Create the cell's folder and write its spec.json, if they are missing. Only the process that holds the cell's
        lease may call this.

        A damaged spec.json is renamed and written anew. If the results in the folder were made with other code or
        images than `basis`, the record is set aside and checkpoints are deleted.

        Args:
            cell: the specification that spec.json states.
            basis: the code and images that the cell is trained with now.
            parents: whether to create a missing study folder as well, which a worker never does.
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
        """Return the cell's specification from spec.json; None if that file is missing or damaged."""
        try:
            return cell_from_json(files.read_sealed(self.spec, legacy_fields=SPEC_FIELDS)["cell"])
        except (OSError, ValueError, KeyError, UserError):
            return None

    def basis(self) -> Basis:
        """Return the code and images that the results in this folder are valid for, as far as spec.json states them."""
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
        """Write into spec.json that the results in this folder are valid for the code and images `now`."""
        self._write_spec(files.read_sealed(self.spec, legacy_fields=SPEC_FIELDS)["cell"], now)

    def _write_spec(self, cell: dict[str, Any], basis: Basis) -> None:
        stated = {name: value for name, value in dataclasses.asdict(basis).items() if value}
        files.write_sealed(self.spec, {"schema": SCHEMA_VERSION, "cell": cell} | stated)

    def new_attempt(self) -> Path:
        """Create the folder of the next attempt, exclusively, delete half-written files of killed attempts, and return
        the folder.

        Only the process that holds the cell's lease may call this.

        Raises:
            UserError: the folder cannot be created.
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
        """Write into the newest attempt's status.json that the cell's processes were killed too often in one run, and
        that the attempt failed.

        Only the process that holds the cell's lease may call this.

        Raises:
            UserError: the file cannot be written.
        """
        last = self.attempts()[-1]
        stated = attempt_status(last) | {"outcome": "failed", "reason": KILLED, "killed": True, "again": False}
        files.write_sealed(last / "status.json", stated)

    def attempt_log(self, *, up_to: Path | None = None) -> tuple[Attempt, ...]:
        """Return when each attempt began and ended, and how it ended, oldest first.

        The reason of a failure is left out, because it may name paths.

        Args:
            up_to: folder of the last attempt to return; None: the newest attempt.
        """
        stated = [
            attempt_status(path) for path in self.attempts() if up_to is None or int(path.name) <= int(up_to.name)
        ]
        return tuple(Attempt(outcome=s["outcome"], started=s.get("started"), ended=s.get("ended")) for s in stated)

    def read_record(self) -> Record | None:
        """Return the cell's record after verifying it; None if there is none.

        Raises:
            UserError: as for `bench.store.records.read_record`.
        """
        return records.read_record(self.record, of=self.path.name) if self.record.exists() else None

    def read_outcome(self) -> records.Outcome | None:
        """Return how the cell ended, from its verified record; None if it has no record. This is much faster than
        `read_record`.

        Raises:
            UserError: as for `bench.store.records.read_record`.
        """
        try:
            return records.read_outcome(self.record, of=self.path.name)
        except (FileNotFoundError, NotADirectoryError):  # a bad folder is reported when it is written to
            return None

    def set_aside(self, path: Path, *, as_what: str = "damaged") -> Path:
        """Rename the file `path` of this folder, so that it is kept but no longer used, and return its new path.

        Args:
            as_what: word in the new name that says why, such as "damaged" or "other-code".

        Raises:
            UserError: the file cannot be renamed.
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
        """Return whether the cell has a valid record that does not state a failure. A damaged record is renamed (see
        `set_aside`) and does not count.

        Raises:
            UserError: a damaged record cannot be set aside, or a newer version of the project wrote the record.
        """
        try:
            outcome = self.read_outcome()
        except records.DamagedRecord:
            self.set_aside(self.record)
            return False
        return outcome is not None and outcome.status != "failed"

    def is_settled(self, basis: Basis) -> bool:
        """Return whether the cell has a valid result of the code and images `basis`, and nothing is left to clean up.

        This may be called without the lease. A process that gets False must take the lease and examine the cell again.

        Raises:
            UserError: a newer version of the project wrote the record.
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
        """Check that the attempt in the folder `attempt` is the newest, and that the cell has no result yet.

        Raises:
            LeaseLost: another process has begun another attempt, or finished the cell, in the meantime.
        """
        if self.is_done():
            raise LeaseLost("another runner has finished the run")
        if self.attempts()[-1] != attempt:
            raise LeaseLost("another runner has begun the run anew")

    def publish(self, record: Record) -> None:
        """Write the record, after which the cell is done. `settle` then moves the cell's weights into place and deletes
        its checkpoints.

        Raises:
            LeaseLost: another process has finished the cell already; the record of that process is kept.
            UserError: the record cannot be written (the disk is full, …).
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
            with contextlib.suppress(FileNotFoundError):  # a network file system may repeat a rename that succeeded
                os.rename(self.record, aside)
            if records.read_outcome(aside).status != "failed":  # another runner has just written it: put it back
                with contextlib.suppress(FileExistsError):
                    files.link_new(aside, self.record)
            aside.unlink()

    def tidy(self) -> None:
        """Clean up a finished cell whose process was killed after it wrote the record. Nothing is done if another
        process holds the cell's lease.

        Raises:
            UserError: the weights cannot be moved to `weights/`.
        """
        if self._left_behind():
            with claim(self.lease, finished=True) as held:
                if held is not None:
                    self.settle()
                    files.remove_leftovers(self.path, *self.attempts(), owned=True)

    def _left_behind(self) -> bool:
        """Return whether this folder contains anything that a finished cell should not have: a lease, checkpoints, a
        temporary file, or weights in the folder of an attempt."""
        left = [
            path for name in (".*.tmp", "attempts/*/.*.tmp", f"attempts/*/{WEIGHTS}") for path in self.path.glob(name)
        ]
        return any(path.exists() for path in (self.lease, self.checkpoints, *left))

    def settle(self) -> None:
        """Clean up after the record is written: move the weights of the record's attempt to `weights/`, and delete
        checkpoints and the weights of other attempts. If the process is killed before the end, the next run does the
        rest.

        Raises:
            UserError: the weights cannot be moved.
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
    """Return the contents of status.json in the folder of an attempt. If the attempt was killed before it wrote that
    file, or the file is damaged, return {"outcome": "unknown"}."""
    try:
        return files.read_sealed(attempt / "status.json", legacy_fields=STATUS_FIELDS)
    except (OSError, ValueError):
        return {"outcome": "unknown"}


def was_killed(status: dict[str, Any]) -> bool:
    """Return whether an attempt, whose status.json has the contents `status`, was killed: it states that, or it states
    no final outcome.

    An attempt that is still running looks the same. Only the holder of the cell's lease can be sure that none is.
    """
    return status["outcome"] in ("running", "unknown") or status.get("killed") is True


class State(NamedTuple):
    """The state of a cell: how far its training is, and why it is not complete.

    Attributes:
        name: the state.
        fraction: fraction of the cell's training that is done, in [0, 1].
        note: why the cell is not complete; None if it is complete, or the reason is not known.
        without_result: "diverged" or "oom" (out of memory) for a cell that ended so, without scores; else None.
        reason: why the cell diverged or ran out of memory; else None.
        deadly: whether the cell's last `MOST_KILLS` attempts were all killed, so that the next may be killed too.
        took: (wall-clock, processor) seconds of a complete cell; each is None if the record does not state it.
    """

    name: CellState
    fraction: float
    note: str | None
    took: tuple[float | None, float | None] = (None, None)
    without_result: str | None = None
    reason: str | None = None
    deadly: bool = False


def state_of(directory: CellDirectory) -> State:
    """Return the state of a cell, determined from its files alone. This is cheap enough for thousands of cells, because
    neither torch nor NumPy is imported.

    Raises:
        UserError: a newer version of the project wrote the cell's record.
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
    """What distinguishes a study's folder from another folder at the same path.

    Attributes:
        token: random text from the folder's store.json; None if an early version of the project wrote that file.
        device, number: device and inode number of the folder. They differ between a study and its copy (for example one
            that appears at the path when a file system is unmounted), which has the same token.
    """

    token: str | None
    device: int
    number: int


@dataclass(frozen=True)
class Study:
    """The folder of one study, `results/<suite>/`, and the cells in it. `path`: path of the folder."""

    path: Path

    def identity(self) -> Identity:
        """Return what distinguishes this folder from others at the same path, for a later call of `check_is`.

        Raises:
            StoreGone: there is no study at this path.
        """
        try:
            there = os.stat(self.path)
            os.stat(self.cells_path)
            stated = files.read_sealed(self.path / STORE_FILE, legacy_fields=frozenset(("schema",)))
        except (OSError, ValueError) as error:
            raise self._gone("is not there (any more)") from error
        return Identity(token=stated.get("token"), device=there.st_dev, number=there.st_ino)

    def check_is(self, known: Identity) -> None:
        """Check that the folder at the study's path is still the one with the identity `known`: its file system may
        have been unmounted, or a folder of the same name created since.

        Raises:
            StoreGone: the folder is gone, or another folder is in its place.
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
        """Return all cell folders of the study, sorted by name."""
        if not self.cells_path.exists():
            return []
        return [CellDirectory(p) for p in sorted(self.cells_path.iterdir()) if p.is_dir()]

    def traces(self) -> list[Path]:
        """Return the trace files that torch.profiler wrote in runs with the option --profile, sorted by cell."""
        return sorted(self.cells_path.glob("*/attempts/*/trace/*.pt.trace.json"))

    def check(self) -> None:
        """Check that this study can be read and written: that no newer version of the project wrote it, and that it
        has no links to folders. A folder that does not exist yet passes.

        Raises:
            UserError: the path is a file, the schema is newer, store.json is unreadable, or a folder is a link.
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
        """Check that no folder in the study is a link, because files written or deleted through a link would be in a
        folder elsewhere. A copied study may have links, since git and tar keep them.

        Raises:
            UserError: a folder is a link.
        """
        for folder in (self.path, self.cells_path, *self.cells_path.glob("*"), *self.cells_path.glob("*/attempts")):
            for entry in files.entries(folder):
                if entry.is_symlink() and entry.is_dir():
                    raise UserError(
                        f"{entry.path} is a link to a folder: runs and reports would write and remove files there.",
                        "Put the folder itself there, or choose another one with --results, which may be a link.",
                    )

    def create(self) -> None:
        """Create the study's folder, with its schema version and token in store.json.

        Raises:
            UserError: the folder cannot be written, or `check` refuses it.
        """
        self.check()
        files.make_directory(self.path)
        files.remove_leftovers(self.path)
        if not (self.path / STORE_FILE).exists():
            new = {"schema": SCHEMA_VERSION, "token": secrets.token_hex(16)}
            with contextlib.suppress(FileExistsError):  # one of two runs that begin at once writes the file
                files.write_new(self.path / STORE_FILE, files.sealed(new))
        files.make_directory(self.cells_path)
