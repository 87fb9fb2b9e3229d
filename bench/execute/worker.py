"""A worker: runs cells that are neither done nor leased, one after the other (`python -m bench.worker`).

Started by the executor, once per device or core, on this machine or on any that shares the folder. A worker takes the
next cell that is neither done nor leased, runs it, writes its record, and goes on until nothing is left. Standard
output carries one JSON object per line for whoever started it.

Under torchrun (`torchrun --nproc-per-node=4 -m bench.worker ...`) the processes are one worker: they train each cell
together. The first takes leases, picks cells and writes; the others compute what it tells them.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.core import environment, files, registry
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
from bench.core.record import Record, Result
from bench.core.registry import revisions_of
from bench.core.spec import Cell, cell_from_json, cell_id, to_json
from bench.cost import precomputed
from bench.execute.jobs._contract import JobContext
from bench.store import checkpoints, records
from bench.store.lease import claim
from bench.store.study import CellDirectory, Study, attempt_status
from bench.train.ranks import EXIT_RETRY, ONE_RANK, RankFailure, Ranks, SharedError, check_cells

WAIT_FOR_OTHERS = 1.0  # seconds between looks at cells that somebody else holds


class Signals:
    """Signals only set a flag; the loop looks at it between steps. A vanished parent counts as a signal."""

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


def emit(event: str, **values: Any) -> None:
    """Tell the executor; a closed pipe is no reason to fail."""
    try:
        print(json.dumps({"event": event, **values}), flush=True)
    except (BrokenPipeError, ValueError):
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - lives as long as the process


class Worker:
    """One worker over a list of cells: a process, or one rank of several."""

    def __init__(
        self,
        study: Study,
        cells: list[Cell],
        *,
        suite: str,
        options: argparse.Namespace,
        stop: Signals,
        ranks: Ranks = ONE_RANK,
    ) -> None:
        self.study, self.cells, self.suite, self.options, self.stop = study, cells, suite, options, stop
        self.ranks = ranks
        self.failed = False

    def run(self) -> int:
        """Work until every cell is done, failed here, or a signal stops it. Returns the exit code.

        Raises:
            RankFailure: another rank is gone.
        """
        try:
            if not self.ranks.is_rank0:
                return self._follow()
            code = self._choose()
            self.ranks.run_on_rank0(lambda: None)  # nothing more to do
            return code
        except Exception as error:
            if self.ranks.size == 1 or isinstance(error, RankFailure):
                raise
            raise self.ranks.failure(error) from error

    def _follow(self) -> int:
        """What every rank but the first does: the same work, writing nothing."""
        silent: Callable[..., None] = lambda *_: None  # noqa: E731
        while (order := self.ranks.run_on_rank0(lambda: None)) is not None:
            number, attempt = order
            cell = self.cells[number]
            context = self._context(self.study.cell(cell), attempt, log=silent, progress=silent)
            try:
                self._job(cell, context)
            except Interrupted:
                self.stop.stopping = True
            except SharedError:
                pass  # the first rank says so
        return EXIT_INTERRUPTED if self.stop() else EXIT_OK

    def _job(self, cell: Cell, context: JobContext) -> Result:
        """Run the cell's job. What breaks one rank, unknown to the others, ends them all."""
        try:
            result: Result = registry.load("job", cell.job).run(cell, context)
            return result
        except (Interrupted, SharedError):
            raise
        except Exception as error:
            if self.ranks.size == 1:
                raise
            raise self.ranks.failure(error) from error

    def _choose(self) -> int:
        pending = list(self.cells)
        while pending and not self.stop():
            held = []
            for cell in pending:
                if self.stop():
                    break
                if not self._try(cell):
                    held.append(cell)
            if held == pending:
                time.sleep(WAIT_FOR_OTHERS)
            pending = held
        if self.stop():
            return EXIT_INTERRUPTED
        return EXIT_FAILED if self.failed else EXIT_OK

    def _try(self, cell: Cell) -> bool:
        """Do one cell unless it is done. False if another runner holds it."""
        directory = self.study.cell(cell)
        files.make_directory(directory.path)
        with claim(directory.lease) as mine:
            if not mine:
                return False
            directory.prepare(cell)  # only the holder writes here: it clears away what a killed one left half-written
            if self._done(directory):
                checkpoints.clear(directory.checkpoints)  # a kill came between the record and this
            elif not self._refused(directory):
                self._attempt(cell, directory)
        return True

    def _refused(self, directory: CellDirectory) -> bool:
        """Whether another worker of this run has met what only the user can mend: it would be met again."""
        if self.options.since is None or not (attempts := directory.attempts()):
            return False
        last = attempt_status(attempts[-1])
        return last.get("again") is False and last["started"] >= self.options.since

    def _done(self, directory: CellDirectory) -> bool:
        """Whether a record stands; a damaged one is set aside, and the cell done again."""
        try:
            record = directory.read_record()
        except records.DamagedRecord:
            directory.set_aside_record()
            return False
        return record is not None and record.status != "failed"

    def _attempt(self, cell: Cell, directory: CellDirectory) -> None:
        attempt = directory.new_attempt()
        status: dict[str, Any] = {"started": now(), "outcome": "running"}
        files.write_sealed(attempt / "status.json", status)
        files.write_json(attempt / "env.json", to_json(environment.describe()))

        def log(text: str) -> None:
            with open(attempt / "log.txt", "a", encoding="utf-8") as handle:
                handle.write(f"{now()} {text}\n")

        def finish(outcome: str, **why: Any) -> None:
            status.update(ended=now(), outcome=outcome, **why)
            files.write_sealed(attempt / "status.json", status)

        name = directory.path.name
        emit("start", cell=name, model=cell.model, data=cell.data_name, seed=cell.seed)
        context = self._context(directory, attempt, log=log, progress=self._reporter(directory, attempt))
        self.ranks.run_on_rank0(lambda: (self.cells.index(cell), attempt))
        try:
            result = self._job(cell, context)
        except Interrupted as interruption:
            self.stop.stopping = True  # the signal may have come to another rank
            log(f"interrupted: {interruption}")
            finish("interrupted")
            emit("interrupted", cell=name)
            return
        except RankFailure as failure:
            log(f"failed: {failure}\n{traceback.format_exc()}")
            finish("failed", reason=str(failure))
            raise
        except UserError as error:
            self._fail(name, str(error), log, finish, again=False)
            return
        except Exception as error:
            log(traceback.format_exc())
            self._fail(name, f"{type(error).__name__}: {error} (see {attempt / 'log.txt'})", log, finish)
            return
        finish(result.status)
        self._record(cell, directory, result)
        emit("done", cell=name, status=result.status, reason=result.reason, seconds=result.cost.seconds.total)

    def _fail(self, name: str, reason: str, log: Any, finish: Any, *, again: bool = True) -> None:
        """A cell that could not be run leaves no record: the next run tries again. In this run another worker does,
        unless the user has something to mend first (`again` False)."""
        self.failed = True
        log(f"failed: {reason}")
        finish("failed", reason=reason, again=again)
        emit("failed", cell=name, reason=reason)

    def _record(self, cell: Cell, directory: CellDirectory, result: Result) -> None:
        """Write the record, and only then remove what it makes superfluous."""
        revisions, attempts = revisions_of(cell), directory.attempt_log()
        record = Record(
            suite=self.suite,
            cell_id=cell_id(cell, revisions),
            directory=directory.path.name,
            cell=cell,
            revisions=revisions,
            environment=environment.describe(time_start=attempts[0].started, time_end=now()),
            attempts=attempts,
            **{entry.name: getattr(result, entry.name) for entry in dataclasses.fields(Result)},
        )
        records.write_record(directory.record, record)
        checkpoints.clear(directory.checkpoints)

    def _reporter(self, directory: CellDirectory, attempt: Path) -> Callable[[dict[str, Any]], None]:
        def progress(values: dict[str, Any]) -> None:
            emit("progress", cell=directory.path.name, **values)
            files.append_line(attempt / "metrics.jsonl", {"time": now(), **values})

        return progress

    def _context(self, directory: CellDirectory, attempt: Path, *, log: Any, progress: Any) -> JobContext:
        return JobContext(
            directory=directory,
            attempt=attempt,
            device=self.options.device,
            threads=self.options.threads,
            progress=progress,
            should_stop=self.stop,
            log=log,
            data_root=self.options.data_root,
            profile=self.options.profile and self.ranks.is_rank0,
            ranks=self.ranks,
        )


def join(device: str, cells: list[Cell]) -> Ranks:
    """This process's place among those that torchrun started; alone if it started none or one.

    Raises:
        UserError: a batch that the ranks cannot share; a job that cannot be shared; fewer devices than ranks.
    """
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1:
        return ONE_RANK
    check_cells(cells, ranks=size)
    from bench.train.distributed import DistributedRanks

    return DistributedRanks(device=device)


@command
def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.worker", description=__doc__)
    parser.add_argument("--store", type=Path, required=True, help="the study's folder, e.g. results/scaling")
    parser.add_argument("--cells", type=Path, required=True, help="JSON list of cell specs")
    parser.add_argument("--suite", required=True, help="name of the suite, for the records")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--data-root", type=Path, default=None)
    parser.add_argument("--known", type=Path, default=None, help="what was measured for all workers of the study")
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--since", default=None, help="when the run began: what it could not do is not tried again")
    parser.add_argument("--parent", type=int, default=None, help="stop when this process is no longer the parent")
    options = parser.parse_args(argv)
    stop = Signals(options.parent)
    cells = [cell_from_json(item) for item in json.loads(options.cells.read_text())]
    if options.known:
        precomputed.install(json.loads(options.known.read_text()), device=options.device, threads=options.threads)
    study = Study(options.store)
    study.create()
    ranks = join(options.device, cells)
    try:
        code = Worker(study, cells, suite=options.suite, options=options, stop=stop, ranks=ranks).run()
    except RankFailure as failure:
        if failure.is_reporter:
            advice = "Run the same command to continue, with any number of ranks; nothing saved is lost."
            print(f"error: {failure}\n  {advice}", file=sys.stderr)
        ranks.hard_exit(EXIT_RETRY if failure.retryable else EXIT_USAGE)
    ranks.close()
    return code

