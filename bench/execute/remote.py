"""Runs a plan on a cluster: workers that an executor starts elsewhere, followed through the study's folder.

Each worker runs the command that `bench.execute.local` runs, and takes cells as workers everywhere do: by their leases.
Whatever ends a worker costs its cell the time since its last checkpoint; another worker goes on with it.
"""

from __future__ import annotations

import contextlib
import json
import secrets
import shutil
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from bench.core import files
from bench.core.environment import now
from bench.core.errors import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_OK, Interrupted, UserError
from bench.core.events import Notice, WorkerEvent, last_failure
from bench.core.formatting import plural
from bench.core.spec import to_json
from bench.core.subprocesses import child_environment
from bench.execute import local
from bench.execute.executors.executor import SAVE_SECONDS, Executor, Resources, WorkerCommand
from bench.execute.local import Account, Failure
from bench.execute.watching import Watched
from bench.plan.options import StudyOptions
from bench.plan.plan import Plan, PlannedCell
from bench.store.lease import EXPIRES_AFTER
from bench.store.study import CellDirectory, Study, state_of

SUBMITTED_FILE = "submitted-{}.json"  # in the folder of a run, for each kind of worker
EXECUTOR_FOLDER = "executor"  # beside it: where the executor keeps its own
MAX_NAMED_JOBS = 5  # jobs that are named
RUNS_FOLDER = ".jobs"  # in the study's: what workers read, their logs, and what executors keep
POLL_SECONDS = 0.5  # seconds between looks at the folder, at least
DRAIN_SECONDS = 60.0  # seconds in which workers that have nothing left to do may end
LEASE_PATIENCE_SECONDS = (
    EXPIRES_AFTER + 10.0
)  # seconds after which a worker leaves what others hold: a dead holder is known by then
GIB = 1 << 30
WORKER_BASE_BYTES = 2 * GIB  # bytes of a worker that has loaded torch
MEMORY_MARGIN = 1.5  # times the memory that a plan expects, and twice that the hours
LEAST_HOURS, MOST_HOURS = 1.0, 24.0
FORWARDED_VARIABLES = ("VIT_BENCH_", "OMP_", "MKL_", "MALLOC_", "TOKENIZERS_", "TORCHINDUCTOR_", "PYTHONPATH")


def runs_on(make: Callable[[Path, Resources], Executor]) -> Callable[..., list[Failure]]:
    """What an executor of clusters exports: (plan, options of the study, on_event=…, tick=…) -> as `run`."""

    def run_as_asked(
        plan: Plan, options: StudyOptions, *, on_event: Callable[[int, WorkerEvent], None], tick: Callable[[], None]
    ) -> list[Failure]:
        return run(
            plan,
            make,
            device=options.device,
            nodes=options.nodes,
            workers=options.workers,
            options=options.job,
            detach=options.detach,
            on_event=on_event,
            tick=tick,
            profile=options.profile,
            co2=options.co2,
        )

    return run_as_asked


def run(
    plan: Plan,
    make: Callable[[Path, Resources], Executor],
    *,
    device: str = "auto",
    nodes: int = 1,
    workers: int | None = None,
    options: Sequence[tuple[str, Any]] = (),
    detach: bool = False,
    on_event: Callable[[int, WorkerEvent], None],
    tick: Callable[[], None],
    profile: bool = False,
    co2: float | None = None,
) -> list[Failure]:
    """Run everything that is left to do. Returns the cells that failed, or could not be begun; all others are done.

    Args:
        make: an executor, of the folder for its files and the needs of its workers.
        device: as workers are to find it.
        nodes: machines of each worker.
        workers: at once, at most.
        options: see `Resources.options`.
        detach: leave when workers are submitted.

    Raises:
        Interrupted: a signal to stop. UserError: as `bench.execute.local.run`.
    """
    study = Study(plan.store)
    study.create()
    refused = local.refused(plan)
    if not plan.todo:
        return refused
    name = f"{now()[:19].replace(':', '')}-{secrets.token_hex(2)}"
    folder = files.make_directory(plan.store.absolute() / RUNS_FOLDER / name)
    gpus = device != "cpu" and plan.on_gpu
    kinds = [
        WorkerKind(
            plan,
            number,
            cells,
            folder=folder,
            device=device,
            profile=profile,
            co2=co2,
            nodes=nodes,
            needs=resources(plan, cells, nodes=nodes, gpus=gpus, options=dict(options)),
        )
        for number, cells in enumerate(kinds_of(plan, gpus=gpus))
    ]
    with contextlib.ExitStack() as opened:
        early = opened.enter_context(local.signals())
        for kind in kinds:
            kind.executor = make(kind.files, kind.needs)
            opened.callback(kind.executor.close)
        received = opened.enter_context(local.signals())  # in place of what a library has put there
        earlier, before = adopt(kinds, study, folder.parent)
        if earlier:
            queued = f"{plural(earlier, 'job')} of an earlier run still queued or running: not submitted again."
            on_event(-1, Notice(message=queued))
        if early or received:  # while the library was loaded, or asked
            for kind in kinds:
                kind.executor.leave()
            shutil.rmtree(folder, ignore_errors=True)
            raise Interrupted("nothing was submitted")
        fleet = Fleet(kinds, Watched(study, [planned.cell for planned in plan.todo]), workers=workers)
        fleet.begin()
        closed: list[float] = []  # when the terminal was
        names = [name for kind in kinds for name in kind.executor.names()]
        if names or earlier:
            closed = opened.enter_context(local.signals((signal.SIGHUP,)))
        if detach:
            for kind in kinds:
                kind.executor.leave()
            if names:
                shown = ", ".join(names[:MAX_NAMED_JOBS]) + (", …" if len(names) > MAX_NAMED_JOBS else "")
                on_event(-1, Notice(message=f"{plural(len(names), 'job')} submitted: {shown}."))
            else:
                shutil.rmtree(folder, ignore_errors=True)
            return refused
        account = Account()
        try:
            fleet.follow(account, on_event=on_event, tick=tick, received=received, closed=closed)
        except BaseException:
            fleet.stop()
            raise
        if received:
            raise Interrupted(account.stopped())
    failures = local.unfinished(plan, account, fleet.complaints, began=fleet.began)
    if not failures:
        for done in (folder, *before):
            shutil.rmtree(done, ignore_errors=True)
        with contextlib.suppress(OSError):
            folder.parent.rmdir()
    return failures + refused


def adopt(kinds: Sequence[WorkerKind], study: Study, folder: Path) -> tuple[int, list[Path]]:
    """Follow jobs of earlier runs that are still queued or running and have nothing to do but cells of this run, each
    as one of the kind of whose cells it was submitted for the most; call off those that have nothing to do at all.
    Returns how many are followed, and the folders of runs that nobody else needs."""
    followed, done = 0, list[Path]()
    asked = frozenset[str]().union(*(kind.names for kind in kinds))
    for earlier in sorted({path.parent for path in folder.glob(f"*/{SUBMITTED_FILE.format('*')}")}):
        needed = False
        for path in sorted(earlier.glob(SUBMITTED_FILE.format("*"))):
            entry = json.loads(path.read_text())
            jobs, theirs = entry["jobs"], earlier / EXECUTOR_FOLDER
            left = {name for name in entry["cells"] if state_of(CellDirectory(study.cells_path / name)).name != "done"}
            if not left:
                kinds[0].executor.call_off(jobs, theirs)
            elif left <= asked:
                kind = max(kinds, key=lambda kind: len(kind.names & left))
                number = kind.executor.adopt(jobs, theirs)
                kind.running += number
                followed += number
            else:
                needed = True
        done += [] if needed else [earlier]
    return followed, done


def kinds_of(plan: Plan, *, gpus: bool) -> list[list[PlannedCell]]:
    """Cells whose workers need about as much: memory within a factor of two, hours within one of four."""
    found: dict[tuple[int, int], list[PlannedCell]] = {}
    for cell in plan.todo:
        key = _memory(cell, gpus=gpus).bit_length(), int(_hours(cell)).bit_length() // 2
        found.setdefault(key, []).append(cell)
    return list(found.values())


def _memory(cell: PlannedCell, *, gpus: bool) -> int:
    """Bytes of a machine's memory for a process: on a CPU that of what trains is the same."""
    needs = cell.needs
    return (
        WORKER_BASE_BYTES
        if needs is None
        else WORKER_BASE_BYTES + int(MEMORY_MARGIN * (needs.host + (needs.kept if gpus else needs.device)))
    )


def _hours(cell: PlannedCell) -> float:
    return min(MOST_HOURS, max(LEAST_HOURS, 2 * (cell.seconds or 0.0) / 3600))


def resources(
    plan: Plan, cells: Sequence[PlannedCell], *, nodes: int, gpus: bool, options: dict[str, Any]
) -> Resources:
    """The needs of each worker for these cells, on each of its machines."""
    each = max(1, plan.ranks // nodes)
    return Resources(
        cpus=each * plan.threads,
        gpus=each if gpus else 0,
        nodes=nodes,
        options=options,
        memory=each * max(_memory(cell, gpus=gpus) for cell in cells),
        hours=max(map(_hours, cells)),
    )


class WorkerKind:
    """Cells that need about as much, and the workers for them."""

    executor: Executor

    def __init__(
        self,
        plan: Plan,
        number: int,
        cells: Sequence[PlannedCell],
        *,
        folder: Path,
        device: str,
        profile: bool,
        co2: float | None,
        nodes: int,
        needs: Resources,
    ) -> None:
        self.needs, self.names, self.running = needs, {cell.name for cell in cells}, 0
        self._folder, self._number, self._made = folder, number, 0
        self.files = folder / EXECUTOR_FOLDER
        listed, computed = folder / f"cells-{number}.json", folder / f"precomputed-{number}.json"
        files.write_json(listed, [to_json(planned.cell) for planned in cells])
        costs = plan.calibration.precomputed.get("costs", [])  # the peaks beside them are of this machine
        files.write_json(computed, {"costs": costs})
        self._command = local.command(
            plan, cells=listed, precomputed=computed, device=device, profile=profile, co2=co2, ranks=plan.ranks // nodes
        )
        self._command += ["--patience", str(LEASE_PATIENCE_SECONDS)]
        environment = child_environment(plan.threads)
        self._environment = {name: value for name, value in environment.items() if name.startswith(FORWARDED_VARIABLES)}

    def submit(self, number: int) -> None:
        """Start so many more workers."""
        works = []
        for _ in range(number):
            log = self._folder / f"worker-{self._number}-{self._made}.log"
            works.append(WorkerCommand(self._command, environment=self._environment, log=log))
            self._made += 1
        self.running += number
        if works:
            self.executor.submit(works)
            if jobs := self.executor.names():  # a later process adopts them by this
                listed = {"cells": sorted(self.names), "jobs": jobs}
                files.write_json(self._folder / SUBMITTED_FILE.format(self._number), listed)


def shared(workers: int, cells: Sequence[int]) -> list[int]:
    """So many workers over kinds of so many cells each: one for every kind where there are enough, the others in
    proportion, of which the largest remainders are rounded up."""
    least = int(workers >= len(cells))
    exact = [least + (workers - least * len(cells)) * number / sum(cells) for number in cells]
    found = [int(share) for share in exact]
    for kind in sorted(range(len(cells)), key=lambda kind: found[kind] - exact[kind])[: workers - sum(found)]:
        found[kind] += 1
    return found


class Fleet:
    """All workers of a run."""

    def __init__(self, kinds: Sequence[WorkerKind], watched: Watched, *, workers: int | None) -> None:
        self._kinds, self._watched, self._workers = kinds, watched, workers
        self._restarts = local.MAX_RESTARTS * len(kinds)
        self._waiting = list[WorkerKind]()  # for a free worker
        self.complaints: list[UserError] = []
        self.began = watched.began

    def begin(self) -> None:
        """Start workers beside those that are there: of every kind as many as its share of the cells asks for, and of
        some kinds none at first where fewer workers are allowed than there are kinds."""
        cells = [len(kind.names) for kind in self._kinds]
        shares = [kind.executor.slots for kind in self._kinds]
        if self._workers is not None:
            shares = shared(self._workers, cells)
        for kind, number, share in zip(self._kinds, cells, shares, strict=True):
            kind.submit(max(0, min(number, share) - kind.running))
        self._waiting = [kind for kind in self._kinds if not kind.running]

    def follow(
        self,
        account: Account,
        *,
        on_event: Callable[[int, WorkerEvent], None],
        tick: Callable[[], None],
        received: Sequence[float],
        closed: Sequence[float],
    ) -> None:
        """Forward what the folder shows until nothing is left, or no worker is.

        Args:
            received: signals to stop.
            closed: that of a closed terminal, where workers can do without this process.

        Raises:
            Interrupted: the terminal was closed.
        """
        stops, nothing_left = 0, None  # how often workers were told to save and end

        def look() -> None:
            for number, event in self._watched.news():
                account.take(number, event)
                on_event(number, event)

        while True:
            if closed and not stops:
                for kind in self._kinds:
                    kind.executor.leave()
                raise Interrupted("the terminal was closed, jobs go on without it")
            tick()
            look()
            if received and not stops:
                on_event(-1, Notice(message="Stopping: running cells are being saved."))
                self.stop()
                stops = 1
            if stops == 1 and time.monotonic() - received[0] > 1.1 * SAVE_SECONDS:
                self.stop()  # who got the first call has ended by now, but a library may have lost it
                stops = 2
            left = self._watched.left()
            if not stops:
                self._replace(left, on_event)
            else:
                for kind in self._kinds:
                    kind.running -= len(kind.executor.ended())
            idle = not any(kind.running for kind in self._kinds)
            if stops and (idle or len(received) > 1 or time.monotonic() - received[0] > 2 * SAVE_SECONDS):
                look()  # at what they wrote while they ended
                return
            if not left:  # workers end by themselves; those that still wait for a machine are called off
                nothing_left = nothing_left or time.monotonic()
                if idle or time.monotonic() - nothing_left > DRAIN_SECONDS:
                    return
            elif idle and not self._watched.held():
                return
            time.sleep(max(POLL_SECONDS, self._watched.pause))

    def _replace(self, left: set[str], on_event: Callable[[int, WorkerEvent], None]) -> None:
        """Start a worker for each that was lost, and for cells that nobody is left to do."""
        for kind in self._kinds:
            for ended in kind.executor.ended():
                kind.running -= 1
                if ended.code in (EXIT_OK, EXIT_FAILED):
                    continue
                complaint = local.complaint(ended.code, last_failure(ended.log.splitlines()), ended.log)
                if ended.code != EXIT_INTERRUPTED:
                    self.complaints.append(complaint)
                    on_event(-1, Notice(message=complaint.what))
                self._again(kind, left)
            if not kind.running and kind not in self._waiting and not self._watched.held():
                self._again(kind, left)
        self._waiting = [kind for kind in self._waiting if kind.names & left]
        while self._waiting and (free := (self._workers or 1) - sum(kind.running for kind in self._kinds)) > 0:
            kind = self._waiting.pop(0)
            kind.submit(min(free, len(kind.names & left)))

    def _again(self, kind: WorkerKind, left: set[str]) -> None:
        if self._restarts and left & kind.names:
            self._restarts -= 1
            kind.submit(1)

    def stop(self) -> None:
        for kind in self._kinds:
            kind.executor.stop()
