"""Runs a plan on a cluster: an executor starts the workers there, and this process follows them through the study's
folder.

Each worker runs the command that `bench.execute.local` runs, and takes cells as workers everywhere do: by leases, so
that no two workers run one cell. If a worker ends unexpectedly, its cell loses what was done since the last checkpoint,
and another worker continues it.
"""

from __future__ import annotations

import contextlib
import json
import math
import secrets
import shutil
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from bench.core import files
from bench.core.by_key import by_key
from bench.core.cell_state import CellState
from bench.core.environment import now
from bench.core.errors import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_OK, Interrupted, UserError
from bench.core.events import CellStarted, Notice, WorkerEvent, last_failure
from bench.core.formatting import plural
from bench.core.subprocesses import child_environment
from bench.execute import local
from bench.execute.executors.executor import SAVE_SECONDS, Executor, Resources, WorkerCommand
from bench.execute.local import Account, Failure
from bench.execute.watching import Watched
from bench.plan.plan import Plan, PlannedCell
from bench.plan.resources import MEMORY_MARGIN, beside_gpu
from bench.store.lease import EXPIRES_AFTER
from bench.store.study import CellDirectory, Study, state_of
from bench.study.cell import to_json

SUBMITTED_FILE = "submitted-{}.json"  # in the folder of a run, one for each kind of worker
FIRST_DELAY_SECONDS, MOST_DELAY_SECONDS = 15.0, 300.0  # until a cluster that refused workers is asked again; doubles
RUNS_FOLDER = ".jobs"  # in the study's folder: files that workers read, their logs, and files of executors
POLL_SECONDS = 0.5  # seconds between looks at the folder, at least
LEASE_PATIENCE_SECONDS = (
    EXPIRES_AFTER + 10.0
)  # seconds after which a worker no longer waits for cells that others hold: a dead holder is known by then
GIB = 1 << 30
WORKER_BASE_BYTES = 2 * GIB  # bytes of a worker that has loaded torch
LEAST_HOURS, MOST_HOURS = 1.0, 24.0
CORES = ("cpus-per-task", "cpus-per-gpu", "num-cpus")  # names of --job for a worker's cores, of SLURM and Ray
NO_GPUS = "No GPU is here, so jobs ask for none: with --hardware 8xH100 each asks for one; --device cpu says the same."
FORWARDED_VARIABLES = ("VIT_BENCH_", "OMP_", "MKL_", "MALLOC_", "TOKENIZERS_", "TORCHINDUCTOR_", "PYTHONPATH")


def runs_on(make: Callable[[Resources, WorkerCommand], Executor]) -> Callable[..., list[Failure]]:
    """Return a function (plan, on_event=…, tick=…) that runs a plan as `run` does with this `make`. The file of a
    cluster's executor exports it as EXECUTOR."""
    return partial(run, make)


def run(
    make: Callable[[Resources, WorkerCommand], Executor],
    plan: Plan,
    *,
    on_event: Callable[[int, WorkerEvent], None],
    tick: Callable[[], None],
) -> list[Failure]:
    """Run all cells of a plan that are left to do. Return the cells that failed or could not be begun; all others are
    done.

    Args:
        make: makes an executor from the needs of its workers and their command.
        plan: the plan. Its `machine.asked` (`bench.study.options.Machine`) says which device workers look for, on how
            many nodes each of them runs, how many there are at once, and whether to return once they are submitted.
        on_event: called with (number of a cell, event) for each event; the number is -1 for messages of this process.
        tick: called at every look at the folder, for the display.

    Raises:
        Interrupted: a signal asked for a stop.
        UserError: the cluster refuses; or as in `bench.execute.local.run`.
    """
    study = Study(plan.store)
    study.create()
    known = study.identity()
    refused = local.refused(plan)
    if not plan.todo:
        return refused
    if not files.has_locks(plan.store):
        on_event(-1, Notice(message=local.NO_LOCKS.format(plan.store)))
    asked = plan.machine.asked
    gpus = asked.device != "cpu" and plan.machine.on_gpu
    if not gpus and asked.device == "auto":
        on_event(-1, Notice(message=NO_GPUS))
    name = f"{now()[:19].replace(':', '')}-{secrets.token_hex(2)}"
    folder = plan.store.absolute() / RUNS_FOLDER / name
    with contextlib.ExitStack() as opened:
        early, followed = opened.enter_context(local.signals()), opened.enter_context(contextlib.ExitStack())
        kinds = list[WorkerKind]()
        for number, cells in enumerate(kinds_of(plan, gpus=gpus)):
            kinds.append(WorkerKind(make, plan, cells, gpus=gpus, folder=folder, number=number))
            followed.callback(kinds[-1].executor.close)
        received = opened.enter_context(local.signals())  # in place of handlers that a library has installed
        earlier, before = adopt(kinds, study, folder.parent)
        if earlier:
            queued = f"{plural(earlier, 'job')} of an earlier run still queued or running: not submitted again."
            on_event(-1, Notice(message=queued))
        fleet = Fleet(
            kinds,
            Watched(study, [planned.cell for planned in plan.todo]),
            workers=asked.workers or (plan.cost.workers if plan.machine.hardware else None),
        )
        # From here on a closed terminal leaves the jobs alone, also while they are submitted.
        closed = opened.enter_context(local.signals((signal.SIGHUP,) if kinds[0].executor.queue else ()))
        if early or received:  # while the library was loaded, or asked
            followed.pop_all()
            raise Interrupted("nothing was submitted")
        fleet.submit(fleet.names)
        if asked.detach:
            submitted = fleet.running - earlier
            followed.pop_all()
            if submitted:
                queues = ", ".join(kind.executor.queue for kind in kinds)
                on_event(-1, Notice(message=f"{plural(submitted, 'job')} submitted: {queues}."))
            return refused
        account = Account()
        fleet.follow(account, on_event=on_event, tick=tick, received=received, closed=closed)
        if received:
            raise Interrupted(account.stopped())
        if closed:
            followed.pop_all()
            raise Interrupted("the terminal was closed, jobs go on without it")
    study.check_is(known)
    failures = local.unfinished(plan, account, fleet.complaints, began=fleet.began)
    if not failures:
        for done in (folder, *before):
            shutil.rmtree(done, ignore_errors=True)
        with contextlib.suppress(OSError):
            folder.parent.rmdir()
    return failures + refused


def adopt(kinds: Sequence[WorkerKind], study: Study, folder: Path) -> tuple[int, list[Path]]:
    """Find the jobs of earlier runs that are still queued or running. Jobs with nothing left to do are cancelled. Jobs
    whose remaining cells all belong to this run are followed, as workers of the kind to which most of their cells
    belong. Return (how many are followed, the folders of earlier runs that nobody needs any more).

    Args:
        kinds: the kinds of workers of this run.
        study: the study's folder.
        folder: the folder that holds the folders of runs.
    """
    followed, done = 0, list[Path]()
    asked = frozenset[str]().union(*(kind.names for kind in kinds))
    for earlier in sorted({path.parent for path in folder.glob(f"*/{SUBMITTED_FILE.format('*')}")}):
        needed = False
        for path in sorted(earlier.glob(SUBMITTED_FILE.format("*"))):
            try:
                entry = json.loads(path.read_text())
            except FileNotFoundError:  # the run that wrote it has ended meanwhile, and tidied up
                continue
            queue = str(entry.get("queue", "-"))  # an earlier version's jobs are not known by such a name
            left = {
                name
                for name in entry["cells"]
                if state_of(CellDirectory(study.cells_path / name)).name != CellState.DONE
            }
            if not left:
                kinds[0].executor.call_off(queue)
            elif left <= asked:
                followed += max(kinds, key=lambda kind: len(kind.names & left)).executor.adopt(queue)
            else:
                needed = True
        done += [] if needed else [earlier]
    return followed, done


def kinds_of(plan: Plan, *, gpus: bool) -> list[list[PlannedCell]]:
    """Return the cells that are left to do, grouped by what their workers need: within a group, memory is equal within
    a factor of two, and hours within a factor of four. `gpus`: whether workers use GPUs."""
    kinds = by_key(
        ((_memory(cell, gpus=gpus).bit_length(), int(_hours(cell)).bit_length() // 2), cell) for cell in plan.todo
    )
    return list(kinds.values())


def _memory(cell: PlannedCell, *, gpus: bool) -> int:
    """Return the bytes of host memory that one process needs for a cell. On a CPU this includes what a GPU would hold
    otherwise. `gpus`: whether the process uses a GPU."""
    if gpus:
        return beside_gpu(cell.needs)[1]
    needs = cell.needs
    return WORKER_BASE_BYTES + (0 if needs is None else int(MEMORY_MARGIN * (needs.host + needs.device)))


def _hours(cell: PlannedCell) -> float:
    return min(MOST_HOURS, max(LEAST_HOURS, 2 * (cell.seconds or 0.0) / 3600))


def resources(plan: Plan, cells: Sequence[PlannedCell], *, gpus: bool) -> Resources:
    """Return what each worker for these cells needs on each of its machines. `gpus`: whether workers use GPUs."""
    asked = plan.machine.asked
    each = max(1, plan.cost.ranks // asked.nodes)
    cores = each * (max(beside_gpu(cell.needs)[0] for cell in cells) if gpus else plan.cost.threads)
    for name, value in asked.job:  # cores that the user asks for, from which threads beside a GPU follow
        if name.replace("_", "-") in CORES and isinstance(value, int | float):
            cores = max(1, int(value) * (each if name.endswith("gpu") else 1))
    return Resources(
        cpus=cores,
        gpus=each if gpus else 0,
        nodes=asked.nodes,
        options=dict(asked.job),
        memory=each * max(_memory(cell, gpus=gpus) for cell in cells),
        hours=max(map(_hours, cells)),
    )


class WorkerKind:
    """A group of cells that need about the same resources, and the executor of the workers for them. `fewer` counts the
    workers that have ended and are not replaced."""

    def __init__(
        self,
        make: Callable[[Resources, WorkerCommand], Executor],
        plan: Plan,
        cells: Sequence[PlannedCell],
        *,
        gpus: bool,
        folder: Path,
        number: int,
    ) -> None:
        asked, needs = plan.machine.asked, resources(plan, cells, gpus=gpus)
        if needs.gpus:
            plan = replace(plan, cost=replace(plan.cost, threads=max(1, needs.cpus // needs.gpus)))
        self.names, self.fewer, self.cancelled = {cell.name for cell in cells}, 0, False
        self._next_try, self._delay = 0.0, FIRST_DELAY_SECONDS
        listed, computed = folder / f"cells-{number}.json", folder / f"precomputed-{number}.json"
        self._folder, self._files = folder, dict[Path, Any]({listed: [to_json(planned.cell) for planned in cells]})
        self._files[computed] = {
            "costs": plan.cost.calibration.precomputed.get("costs", [])
        }  # without peaks, which were measured on this machine
        arguments = local.command(
            plan,
            cells=listed,
            precomputed=computed,
            device=asked.device,
            profile=asked.profile,
            co2=asked.co2,
            ranks=plan.cost.ranks // asked.nodes,
        )
        environment = child_environment(plan.cost.threads)
        command = WorkerCommand(
            arguments=(*arguments, "--patience", str(LEASE_PATIENCE_SECONDS)),
            environment={name: value for name, value in environment.items() if name.startswith(FORWARDED_VARIABLES)},
            folder=folder,
            number=number,
        )
        self.executor = make(needs, command)
        if queue := self.executor.queue:  # a later process finds the workers by this name
            self._files[folder / SUBMITTED_FILE.format(number)] = {"cells": sorted(self.names), "queue": queue}

    def submit(self, number: int) -> None:
        """Start `number` more workers. Nothing is done if the cluster has refused workers a short while ago.

        Raises:
            UserError: the cluster refuses.
        """
        if not number or time.monotonic() < self._next_try:
            return
        files.make_directory(self._folder)
        for path, content in self._files.items():
            files.write_json(path, content)
        self._next_try = time.monotonic() + self._delay
        self._delay = min(2 * self._delay, MOST_DELAY_SECONDS)
        self.executor.submit(number)
        self._next_try, self._delay = 0.0, FIRST_DELAY_SECONDS


def shared(workers: int, cells: Sequence[int]) -> list[int]:
    """Divide `workers` among kinds of work, of which `cells` gives the numbers of cells. Return the workers of each
    kind: one for each kind if there are enough, and the others in proportion to cells, rounding up the largest
    remainders."""
    least = int(workers >= len(cells))
    exact = [least + (workers - least * len(cells)) * number / sum(cells) for number in cells]
    shares = [int(share) for share in exact]
    for kind in sorted(range(len(cells)), key=lambda kind: shares[kind] - exact[kind])[: workers - sum(shares)]:
        shares[kind] += 1
    return shares


class Fleet:
    """All workers of a run on a cluster. `owed` counts the workers that the last `submit` found missing; if none is
    running then, the cluster has refused them."""

    def __init__(self, kinds: Sequence[WorkerKind], watched: Watched, *, workers: int | None) -> None:
        self._kinds, self._watched, self._workers = kinds, watched, workers
        self._restarts, self.owed = local.MAX_RESTARTS * len(kinds), 0
        self._kills = self._restarts  # killed workers that may be replaced before another cell begins
        self.complaints: list[UserError] = []
        self.began, self.names = watched.began, watched.left()

    @property
    def running(self) -> int:
        return sum(len(kind.executor.alive) for kind in self._kinds)

    def submit(self, left: set[str]) -> None:
        """Start the workers that are missing: each kind of worker gets a part of the allowed number, in proportion to
        its cells in `left` (names of cells that are left). If fewer workers are allowed than there are kinds, some
        kinds get none for now.

        Raises:
            UserError: the cluster refuses them; it can be asked again.
        """
        open = [kind for kind in self._kinds if kind.names & left]
        cells = [len(kind.names & left) for kind in open]
        shares = [kind.executor.slots for kind in open] if self._workers is None else shared(self._workers, cells)
        free, self.owed = (self._workers or sum(shares)) - self.running, 0
        for kind, share, number in zip(open, shares, cells, strict=True):
            missing = max(0, min(free, min(share - kind.fewer, number) - len(kind.executor.alive)))
            self.owed += missing
            free -= missing
            kind.submit(missing)

    def follow(
        self,
        account: Account,
        *,
        on_event: Callable[[int, WorkerEvent], None],
        tick: Callable[[], None],
        received: Sequence[float],
        closed: Sequence[float],
    ) -> None:
        """Pass on the events that the study's folder shows, and replace lost workers, until no cell or no worker is
        left.

        Args:
            account: what the workers have reported, which this updates.
            on_event, tick: as in `run`.
            received: times at which signals to stop came.
            closed: times at which the terminal was closed, if workers can go on without this process; else empty.
        """
        told = (
            nothing_left
        ) = -math.inf  # times: when workers were last told to save and end; when queued ones were cancelled

        def look() -> None:
            for number, event in self._watched.news():
                if isinstance(event, CellStarted):  # a cell is given up after a few kills, so they come to an end
                    self._kills = local.MAX_RESTARTS * len(self._kinds)
                account.take(number, event)
                on_event(number, event)

        def say(message: str) -> None:
            if account.is_news(message):
                on_event(-1, Notice(message=message))

        while True:
            if closed and not received:
                return
            tick()
            look()
            left = self._watched.left()
            if received and told < 0:
                say("Stopping: runs under way are being saved.")
            if received and time.monotonic() - told > SAVE_SECONDS:
                told = time.monotonic()  # again: a library may have lost the first call
                self.stop(say)
            elif not left and nothing_left < 0:  # running workers end by themselves
                nothing_left = time.monotonic()
                self.stop(say, running=False)
            with heard(say):
                self._replace(left, say, ending=bool(received))
            for why in {kind.executor.waits for kind in self._kinds} - {""}:
                say(f"Workers are still queued, for this reason: {why}.")
            idle = not self.running
            if received and (idle or len(received) > 1 or time.monotonic() - received[0] > 2 * SAVE_SECONDS):
                look()  # workers may have written while they ended
                return
            if not left and (idle or time.monotonic() - nothing_left > SAVE_SECONDS):
                return
            if left and idle and not self.owed and not self._watched.held():
                return
            time.sleep(max(POLL_SECONDS, self._watched.pause))

    def _replace(self, left: set[str], say: Callable[[str], None], *, ending: bool) -> None:
        """Start a worker in place of each that was lost, and one for each kind that has cells left but no worker.

        Args:
            left: names of the cells that are left.
            say: shows a message to the user.
            ending: whether the run is being stopped; nothing is started then.
        """
        for kind in self._kinds:
            for ended in kind.executor.ended():
                kind.fewer += 1
                if ending or ended.code in (EXIT_OK, EXIT_FAILED):
                    continue
                if ended.cancelled:
                    kind.cancelled = True
                    complaint = UserError(f"Somebody cancelled {ended.cancelled}: it is not replaced.", local.CONTINUE)
                else:
                    complaint = local.complaint(ended.code, last_failure(ended.log.splitlines()), ended.log)
                    if ended.code is not None and ended.code < 0 and self._kills:
                        self._kills -= 1
                        kind.fewer -= 1
                    else:
                        self._again(kind)
                if ended.code != EXIT_INTERRUPTED:
                    self.complaints.append(complaint)
                    say(complaint.what)
            nobody = kind.names & left and not kind.executor.alive and kind.fewer and not kind.cancelled
            if nobody and not self._watched.held():
                self._again(kind)
        if not ending:
            self.submit(left)

    def _again(self, kind: WorkerKind) -> None:
        kind.fewer -= bool(self._restarts)
        self._restarts -= bool(self._restarts)

    def stop(self, say: Callable[[str], None], *, running: bool = True) -> None:
        """Cancel queued workers and, if `running`, ask running ones to save and end. `say` shows the message of a
        cluster that does not answer."""
        for kind in self._kinds:
            with heard(say):
                kind.executor.stop(running=running)


@contextlib.contextmanager
def heard(say: Callable[[str], None]) -> Iterator[None]:
    """Context manager that catches the error of a cluster which refuses or does not answer, and shows it with `say`;
    the cluster is asked again later."""
    try:
        yield
    except UserError as error:
        say(f"{error.what} Asked again later; what runs is followed.")
