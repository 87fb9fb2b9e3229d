"""A worker: runs cells that are neither done nor leased, one after the other (`python -m bench.worker`).

Started by the executor, once per device or core, on this machine or on any that shares the folder. A worker takes the
next cell that is neither done nor leased, runs it, writes its record, and goes on until nothing is left. Its former
standard output carries events, one JSON object per line, for whoever started it; what a network prints goes to standard
error.

Under torchrun (`torchrun --nproc-per-node=4 -m bench.worker ...`) the processes are one worker: they train each cell
together. The first takes leases, picks cells and writes; the others only compute.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import math
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from bench.core import environment, files
from bench.core.clock import running
from bench.core.device import DAMAGED, find_device, is_lost, share_memory
from bench.core.environment import now
from bench.core.errors import (
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_OK,
    EXIT_USAGE,
    Interrupted,
    UserError,
    command,
)
from bench.core.events import (
    Advanced,
    CellAdvanced,
    CellDone,
    CellFailed,
    CellInterrupted,
    CellLost,
    CellStarted,
    CellUnsettled,
    Notice,
    ProcessFailed,
    WorkerEvent,
    reports_failure,
    to_line,
)
from bench.core.user_code import answers_only
from bench.cost import precomputed
from bench.data import cache, identity
from bench.data.rehearsed import rehearsing
from bench.execute.jobs.job import Job, JobContext
from bench.store.lease import Lease, LeaseLost, claim, holder
from bench.store.study import (
    ENERGY,
    KILLED,
    MOST_KILLS,
    CellDirectory,
    Identity,
    Study,
    attempt_status,
    was_killed,
)
from bench.study import fingerprint, registry
from bench.study.cell import Cell, cell_from_json, cell_id, to_json
from bench.study.fingerprint import Basis
from bench.study.record import Attempt, Record, Result
from bench.study.registry import revisions_of
from bench.train.ranks import EXIT_RETRY, ONE_RANK, RankFailure, Ranks, SharedError, check_cells, here

WAIT_FOR_OTHERS = 1.0  # seconds between polls of cells leased by other workers
POLLS_BEFORE_NOTICE, POLLS_BETWEEN_NOTICES = 5, 60  # polls before the lease holders are reported, and between reports


class DeviceLost(Exception):
    """Raised when this process can no longer use its device, so that a new process has to take its place."""


class Signals:
    """Records signals that ask for a stop. Calling the object returns whether one came, or whether the process `parent`
    no longer is this process's parent (None: the parent is not watched). Signals only set a flag, which the training
    loop looks at between steps."""

    def __init__(self, parent: int | None) -> None:
        self.stopping = False
        self.parent = parent
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR2):
            signal.signal(number, self._stop)

    def _stop(self, *_: object) -> None:
        self.stopping = True

    def __call__(self) -> bool:
        if self.parent is not None and os.getppid() != self.parent:
            self.stopping = True
        return self.stopping


_channels: list[TextIO] = []  # events go to the last of them, or to standard output where there is none


def emit(event: WorkerEvent) -> None:
    """Send an event to whoever started this worker. If nobody reads events any more (a closed pipe), nothing
    happens."""
    channel = _channels[-1] if _channels else sys.stdout
    try:
        print(to_line(event), file=channel, flush=True)
    except BrokenPipeError:
        with open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), channel.fileno())


@dataclass(frozen=True, kw_only=True)
class WorkerOptions:
    """How a worker runs its cells.

    Attributes:
        device: "cpu", "cuda", "cuda:1" or "mps".
        threads: processor threads of this process.
        share: how many workers use its device together.
        data_root: folder with data sets that are not part of the installation; None: no such folder.
        profile: whether to leave a trace of each cell's first steps.
        co2: grams per kilowatt-hour, for the records; None: emissions are not recorded.
        run: name of the run that started the worker: cells that failed in this run are not tried again; None: no name.
        patience: seconds after which the worker ends if others hold all cells that are left; None: it waits for them.
    """

    device: str
    threads: int = 1
    share: int = 1
    data_root: Path | None = None
    profile: bool = False
    co2: float | None = None
    run: str | None = None
    patience: float | None = None


class Worker:
    """Runs a list of cells, as one process or as one of several ranks (processes that train each cell together)."""

    def __init__(
        self,
        study: Study,
        cells: list[Cell],
        *,
        suite: str,
        options: WorkerOptions,
        stop: Signals,
        ranks: Ranks = ONE_RANK,
        known: Identity | None = None,
    ) -> None:
        self.known = known or study.identity()
        self.study, self.cells, self.suite, self.options, self.stop = study, cells, suite, options, stop
        self.ranks = ranks
        self.failed = False
        self.code = {cell.model: fingerprint.of_model(cell.model) for cell in cells}  # as it is when the worker starts
        self.images = identity.of_cells(root=options.data_root)

    def run(self) -> int:
        """Run cells until every cell is done or has failed here, or until a signal asks for a stop. Return the exit
        code.

        Raises:
            RankFailure: another rank has ended.
        """
        try:
            if not self.ranks.is_rank0:
                return self._work_beside_rank0()
            code = self._choose()
            self.ranks.run_on_rank0(lambda: None)  # tells the other ranks that nothing is left to do
            return code
        except Exception as error:
            if self.ranks.size == 1 or isinstance(error, RankFailure):
                raise
            raise self.ranks.failure(error) from error

    def _work_beside_rank0(self) -> int:
        """Run the loop of each rank other than rank 0, which computes like rank 0 and writes nothing. Return the exit
        code."""
        while (order := self.ranks.run_on_rank0(lambda: None)) is not None:
            number, attempt = order
            cell = self.cells[number]
            context = self._context(self.study.cell(cell), attempt, None)
            try:
                self._job(cell, context)
            except Interrupted:
                self.stop.stopping = True
            except SharedError:
                pass  # rank 0 reports it
        return EXIT_INTERRUPTED if self.stop() else EXIT_OK

    def _job(self, cell: Cell, context: JobContext) -> Result:
        """Run the cell's job, and return its result. If there are several ranks, an error on one of them ends all."""
        try:
            job: Job = registry.load("job", cell.job)
            return job.run(cell, context)
        except (Interrupted, SharedError):
            raise
        except Exception as error:
            if str(error).startswith("DataLoader worker"):  # raised by torch's handler of signals, at any place
                what = "A process that reads images was killed; is memory short?"
                error = UserError(what, "Run the same command to continue; nothing saved is lost.")
            if self.ranks.size == 1:
                raise error
            raise self.ranks.failure(error) from error

    def _choose(self) -> int:
        pending, rounds, waiting_since = list(range(len(self.cells))), 0, None
        first = True
        while pending and not self.stop():
            held = []
            for number in pending:
                if self.stop():
                    break
                if (first and self._kills(number)) or not self._try(number):
                    held.append(number)  # A cell that killed a process comes last, because it may kill this one too.
            first = False
            if len(held) < len(pending):
                waiting_since = None
            else:
                waiting_since = waiting_since or running()
                if self.options.patience is not None and running() - waiting_since > self.options.patience:
                    break  # the workers that hold these cells run them, or workers that start later do
                rounds += 1
                if rounds % POLLS_BETWEEN_NOTICES == POLLS_BEFORE_NOTICE:
                    self._say_who_holds([self.cells[number] for number in held])
                time.sleep(WAIT_FOR_OTHERS)
            pending = held
        if self.stop():
            return EXIT_INTERRUPTED
        return EXIT_FAILED if self.failed else EXIT_OK

    def _say_who_holds(self, cells: list[Cell]) -> None:
        for directory in map(self.study.cell, cells[:3]):
            who = holder(directory.lease) or "a process without a recent heartbeat"
            emit(Notice(message=f"Waiting for {directory.path.name}: leased by {who}."))

    def _kills(self, number: int) -> int:
        """Return how many attempts at the cell with this number in `cells` were killed in this run, or still run."""
        if self.options.run is None:
            return 0
        stated = map(attempt_status, self.study.cell(self.cells[number]).attempts())
        return sum(status.get("run") == self.options.run and was_killed(status) for status in stated)

    def _try(self, number: int) -> bool:
        """Run the cell with this number in `cells` unless it is done. Return False if another worker holds it, or has
        taken it over; else True.

        Raises:
            StoreGone: the study's folder is no longer there.
        """
        cell = self.cells[number]
        directory = self.study.cell(cell)
        self.study.check_is(self.known)
        try:
            basis = Basis(code=self.code[cell.model], images=self.images(cell))
            if directory.is_settled(basis):
                return True
            files.make_directory(directory.path, parents=False)
            with claim(directory.lease) as lease:
                if lease is None:
                    return False
                directory.prepare(cell, basis, parents=False)
                if directory.is_done():
                    directory.settle()  # the cell was finished after the plan was made; `begin` tidies earlier ones
                elif self._failed_for_good(directory):
                    pass
                elif self._kills(number) >= MOST_KILLS:
                    directory.give_up()
                    self.failed = True
                    emit(CellFailed(cell=directory.path.name, reason=KILLED))
                else:
                    return self._attempt(number, directory, lease)
        except UserError as error:  # outside the cell's own work: its folder cannot be written, …
            self.study.check_is(self.known)  # if the store is gone, this error says more
            self.failed = True
            emit(CellFailed(cell=directory.path.name, reason=str(error)))
        return True

    def _failed_for_good(self, directory: CellDirectory) -> bool:
        """Return whether another worker of this run has failed on a cell with a user error, which would come again."""
        if self.options.run is None or not (attempts := directory.attempts()):
            return False
        last = attempt_status(attempts[-1])
        return last.get("again") is False and last.get("run") == self.options.run

    def _attempt(self, number: int, directory: CellDirectory, lease: Lease) -> bool:
        """Run a cell's job and write its record. Return False if another worker has taken the cell over meanwhile; else
        True."""
        cell = self.cells[number]
        attempt = RunningAttempt(directory, lease, run=self.options.run)
        emit(CellStarted(cell=attempt.name, model=cell.model, data=cell.data_name, seed=cell.seed))
        context = self._context(directory, attempt.path, attempt)
        self.ranks.run_on_rank0(lambda: (number, attempt.path))
        meter = self._meter(attempt.path)
        try:
            result = self._job(cell, context)
            meter.close()
            self._publish(cell, attempt, result)
        except Interrupted as interruption:
            self.stop.stopping = True  # the signal may have come to another rank
            attempt.log(f"interrupted: {interruption}")
            emit(CellInterrupted(cell=attempt.name))  # the cell is saved, even if its status cannot be written
            attempt.finish("interrupted")
        except RankFailure as failure:
            attempt.log(f"failed: {failure}\n{traceback.format_exc()}")
            with contextlib.suppress(UserError):
                attempt.finish("failed", reason=str(failure), killed=True)
            raise
        except BaseException as error:  # whatever somebody's network raises; signals raise nothing here
            if isinstance(error, LeaseLost) or isinstance(error.__cause__, LeaseLost):
                return self._lost(attempt, error)
            self.failed = True
            attempt.fail(error)
            if self.ranks.size == 1 and is_lost(self.options.device):
                emit(Notice(message="The device no longer answers: the worker starts anew."))
                raise DeviceLost from error
        finally:
            meter.close()
        if self.options.device in DAMAGED and not self.stop():  # by a failed recording that the cell survived
            raise DeviceLost
        return True

    def _meter(self, attempt: Path) -> contextlib.ExitStack:
        """Start to measure an attempt's energy, if this machine has an energy counter. Closing the returned stack ends
        that. `attempt`: the attempt's folder."""
        counting = contextlib.ExitStack()
        if environment.counts_energy(device := self.options.device):
            from bench.cost import energy

            meter = energy.Meter(attempt / ENERGY, device=device, ranks=here(), share=self.options.share)
            counting.callback(meter.stop)
        return counting

    def _publish(self, cell: Cell, attempt: RunningAttempt, result: Result) -> None:
        """Write the cell's record, and only after that remove files that the record makes superfluous."""
        attempt.check_lease()
        revisions, attempts = revisions_of(cell), attempt.log_with(result.status)
        cost = result.cost
        if cell.job == "train":  # other jobs let further processes do their work
            cost = dataclasses.replace(cost, processor_seconds=attempt.processor_seconds())
        on_one_host = os.environ.get("LOCAL_WORLD_SIZE") == os.environ.get("WORLD_SIZE")
        if on_one_host and any((path / ENERGY).exists() for path in attempt.directory.attempts()):
            from bench.cost import energy

            joules = energy.of_attempts(attempt.directory.attempts(), co2=self.options.co2)
            cost = dataclasses.replace(cost, energy=joules)
        record = Record(
            suite=self.suite,
            cell_id=cell_id(cell, revisions),
            directory=attempt.name,
            cell=cell,
            revisions=revisions,
            environment=environment.describe(time_start=attempts[0].started, time_end=now()),
            attempts=attempts,
            **{entry.name: getattr(result, entry.name) for entry in dataclasses.fields(Result)} | {"cost": cost},
        )
        attempt.directory.publish(record)
        seconds = result.cost.seconds.total
        emit(CellDone(cell=attempt.name, status=result.status, reason=result.reason, seconds=seconds))
        try:
            attempt.finish(result.status)
            attempt.directory.settle()
        except UserError as error:
            self.failed = True
            emit(CellUnsettled(cell=attempt.name, reason=str(error)))

    def _lost(self, attempt: RunningAttempt, error: BaseException) -> bool:
        attempt.log(f"lost: {error}")
        with contextlib.suppress(UserError):
            attempt.finish("lost")
            if attempt.directory.is_done():
                attempt.directory.tidy()  # removes what this attempt has made since
        emit(CellLost(cell=attempt.name))
        emit(Notice(message=f"{attempt.name}: {error}; its results are kept."))
        return False

    def _context(self, directory: CellDirectory, path: Path, attempt: RunningAttempt | None) -> JobContext:
        """Return the context of a job. `attempt`: None on ranks other than rank 0, which write nothing."""
        silent: Callable[..., None] = lambda *_: None  # noqa: E731
        return JobContext(
            directory=directory,
            attempt=path,
            device=self.options.device,
            threads=self.options.threads,
            progress=attempt.progress if attempt else silent,
            should_stop=self.stop,
            log=attempt.log if attempt else silent,
            data_root=self.options.data_root,
            profile=self.options.profile and self.ranks.is_rank0,
            check_lease=attempt.check_lease if attempt else silent,
            ranks=self.ranks,
        )


class RunningAttempt:
    """One attempt at a cell, written to its folder: status.json, env.json, log.txt, metrics.jsonl.

    Raises:
        UserError: the folder cannot be written.
    """

    def __init__(self, directory: CellDirectory, lease: Lease, *, run: str | None = None) -> None:
        self.directory, self.lease, self.name = directory, lease, directory.path.name
        self.path = directory.new_attempt()
        self._can_log = True
        self._status: dict[str, Any] = {"started": now(), "outcome": "running", "run": run}
        self._processor = time.process_time()
        files.write_sealed(self.path / "status.json", self._status)
        files.write_json(self.path / "env.json", to_json(environment.describe()))

    def check_lease(self) -> None:
        """Raise if this attempt no longer holds the cell, before something is written.

        Raises:
            LeaseLost: another worker has taken the cell over, so that nothing may be written.
        """
        self.lease.check()
        self.directory.check_attempt(self.path)

    def log(self, text: str) -> None:
        """Write one line to the attempt's log. If that fails, a notice is sent, but only the first time."""
        try:
            with open(self.path / "log.txt", "a", encoding="utf-8") as handle:
                handle.write(f"{now()} {text}\n")
        except OSError as error:
            if self._can_log:
                emit(Notice(message=files.explain(error, self.path / "log.txt").what))
            self._can_log = False

    def progress(self, advanced: Advanced) -> None:
        """Send a progress report as an event, and add it to metrics.jsonl."""
        emit(CellAdvanced(cell=self.name, progress=advanced))
        files.append_line(self.path / "metrics.jsonl", {"time": now(), **to_json(advanced)})

    def log_with(self, outcome: str) -> tuple[Attempt, ...]:
        """End this attempt with an outcome, and return all attempts at the cell up to this one."""
        self._end(outcome)
        own = Attempt(outcome=outcome, started=self._status["started"], ended=self._status["ended"])
        return (*self.directory.attempt_log(up_to=self.path)[:-1], own)

    def _end(self, outcome: str, **why: Any) -> None:
        if "ended" not in self._status:
            self._status.update(ended=now(), processor_seconds=time.process_time() - self._processor)
        self._status.update(outcome=outcome, **why)

    def processor_seconds(self) -> float | None:
        """Return the processor seconds of all attempts up to this one, which must have ended; None if one was killed
        before it could write its own."""
        earlier = [path for path in self.directory.attempts() if int(path.name) < int(self.path.name)]
        used = [status.get("processor_seconds") for status in (*map(attempt_status, earlier), self._status)]
        known = [float(seconds) for seconds in used if seconds is not None]
        return math.fsum(known) if len(known) == len(used) else None

    def finish(self, outcome: str, **why: Any) -> None:
        """Write to status.json how the attempt ended. `why`: further fields for that file.

        Raises:
            UserError: the file cannot be written.
        """
        self._end(outcome, **why)
        files.write_sealed(self.path / "status.json", self._status)

    def fail(self, error: BaseException) -> None:
        """Report that the attempt failed. The cell gets no record, so the next run tries it again. In this run, too,
        another worker tries it again, unless the error is one that the user has to mend first (UserError)."""
        reason = str(error)
        if not isinstance(error, UserError):
            self.log("".join(traceback.format_exception(error)))
            reason = f"{type(error).__name__}: {error} (see {self.path / 'log.txt'})"
        self.log(f"failed: {reason}")
        emit(CellFailed(cell=self.name, reason=reason))
        with contextlib.suppress(UserError):  # it has been emitted
            self.finish("failed", reason=reason, again=not isinstance(error, UserError))


def join(device: str, cells: list[Cell]) -> Ranks:
    """Return the ranks that torchrun started, with this process's place among them; ONE_RANK if there is no other.

    Raises:
        UserError: the ranks cannot share a batch or a job; there are fewer devices than ranks.
    """
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1:
        return ONE_RANK
    check_cells(cells, ranks=size)
    from bench.train.distributed import DistributedRanks

    return DistributedRanks(device=device)


def read_cells(path: Path) -> list[Cell]:
    """Return the cells in a JSON file such as `bench.run` writes.

    Raises:
        UserError: the file cannot be read, or holds no list of cells.
    """
    try:
        return [cell_from_json(item) for item in json.loads(path.read_text())]
    except (OSError, ValueError, TypeError, AttributeError, KeyError) as error:
        raise UserError(
            f"{path} holds no list of cells: {type(error).__name__}: {error}",
            "bench.run writes such a file and starts the workers itself.",
        ) from error


def rehearses(cells: Sequence[Cell]) -> bool:
    """Return whether the cells are those of a rehearsal (a study of very short trainings, whose numbers mean nothing).

    Raises:
        UserError: only some of them are. A rehearsal has other images under the same names, so the two do not mix.
    """
    kinds = {cell.rehearsal for cell in cells}
    if len(kinds) > 1:
        raise UserError("Cells of a rehearsal lie among others in one list.", "Run them apart.")
    return kinds == {True}


def parsed(argv: list[str] | None) -> argparse.Namespace:
    """Parse the command line. In the result, the device, the number of threads and the parent process are resolved."""
    parser = argparse.ArgumentParser(prog="python -m bench.worker", description=__doc__)
    parser.add_argument("--store", type=Path, required=True, help="the study's folder, e.g. results/scaling")
    parser.add_argument("--cells", type=Path, required=True, help="JSON list of cell specs")
    parser.add_argument("--suite", required=True, help="name of the suite, for the records")
    parser.add_argument("--device", default="auto", help="cpu, cuda, mps, or auto")
    parser.add_argument("--threads", type=int, default=None, help="default: 1, or on a GPU this rank's share of cores")
    parser.add_argument("--share", type=int, default=1, help="workers that use its device, and share its joules")
    parser.add_argument("--data-root", type=Path, default=None)
    parser.add_argument("--precomputed", type=Path, default=None, help="JSON file with measurements for all workers")
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--co2", type=float, default=None, help="grams of CO2 per kilowatt-hour, for the records")
    parser.add_argument("--study", default=None, metavar="TOKEN", help="of the folder, which is then never made")
    parser.add_argument("--run", default=None, help="names the run: cells that failed in it are not retried")
    parser.add_argument(
        "--patience",
        type=float,
        default=None,
        metavar="SECONDS",
        help="end when others have held all that is left for so long (default: wait for them)",
    )
    parser.add_argument("--parent", type=int, default=None, help="stop when this process is no longer the parent")
    given = parser.parse_args(argv)
    given.device = find_device(given.device).device
    if given.threads is None:
        given.threads = 1 if given.device == "cpu" else max(1, environment.cores() // here())
    if given.parent is None and "TORCHELASTIC_RUN_ID" in os.environ:
        given.parent = os.getppid()  # torchrun: if it ends, so do this machine's ranks
    return given


@command
@reports_failure
def main(argv: list[str] | None = None) -> int:
    given = parsed(argv)
    options = WorkerOptions(**{entry.name: getattr(given, entry.name) for entry in dataclasses.fields(WorkerOptions)})
    stop = Signals(given.parent)
    study = Study(given.store)
    if given.study is None:  # started by hand
        study.create()
    else:
        study.check()
    known = study.identity()
    if given.study:
        study.check_is(dataclasses.replace(known, token=given.study))
    cells = read_cells(given.cells)
    if given.precomputed:
        precomputed.install(json.loads(given.precomputed.read_text()), device=options.device, threads=options.threads)
    if options.device != "cpu" and files.has_locks(kernels := cache.kernels()):  # torch locks files of its cache
        os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(kernels))  # kept for the next process
    share_memory(options.device, options.share)
    ranks = join(options.device, cells)
    with answers_only() as channel:
        _channels.append(channel)
        try:
            with rehearsing(rehearses(cells)):
                code = Worker(
                    study, cells, suite=given.suite, options=options, stop=stop, ranks=ranks, known=known
                ).run()
        except RankFailure as failure:
            if failure.is_reporter:
                emit(ProcessFailed(what=str(failure), fix=failure.fix))
                print(f"error: {failure}\n  {failure.fix}", file=sys.stderr)
            ranks.hard_exit(EXIT_USAGE)
        except DeviceLost:
            ranks.hard_exit(EXIT_RETRY)
        finally:
            _channels.pop()
    ranks.close()
    return code
