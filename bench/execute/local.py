"""Runs a plan on this machine: starts a few worker processes, passes their events on to the display, and keeps their
logs in files.

A worker that consists of several ranks (processes that train one network together) is started through torchrun.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import secrets
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, NamedTuple

from bench.core import environment, files
from bench.core.cell_state import CellState
from bench.core.device import accelerators, place, sharing
from bench.core.environment import now
from bench.core.errors import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_OK, Interrupted, UserError
from bench.core.events import (
    CellDone,
    CellFailed,
    CellInterrupted,
    CellLost,
    CellStarted,
    CellUnsettled,
    Notice,
    ProcessFailed,
    WorkerEnded,
    WorkerEvent,
    from_line,
)
from bench.core.subprocesses import child_environment
from bench.plan.plan import Plan
from bench.store.study import Study, attempt_status, state_of
from bench.study.cell import to_json
from bench.train.ranks import EXIT_RETRY

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR2, signal.SIGHUP)
"""Signals that ask for a stop: Ctrl-C, those that clusters send before they end a job, and the closing of a
terminal."""
STOP_PATIENCE = 60.0  # seconds that workers get to save after a signal
KILL_SIGNAL_AFTER = 1.0  # seconds after the first signal from which a further one kills
KILL_PATIENCE = 5.0  # seconds that the kernel gets to end what was killed
MAX_RESTARTS = 3  # restarts, in one run, of workers whose device no longer answers
MAX_LOG_BYTES = 16 << 20  # bytes that are kept of what a worker and its network write to standard error
NOTICE_SECONDS = 50.0  # a notice that comes again within so many seconds is not shown again
NO_LOCKS = "Files in {} cannot be locked: two runs there may start the same run; only one will finish it."
CONTINUE = "Run the same command to continue; nothing done is lost."


class Failure(NamedTuple):
    """A cell (training run with its evaluations) that could not be run, and the reason."""

    cell: str
    reason: str


@dataclass
class Account:
    """What the workers of a run have reported so far.

    Attributes:
        failures: cell -> why it failed.
        unsettled: cell -> why its weights or checkpoints could not be tidied, although its record is written.
        running: worker -> the cell that it is running.
        saved: cells that were saved after a signal to stop.
        notices: message -> time at which it was last given, by a monotonic clock in seconds.
    """

    failures: dict[str, str] = field(default_factory=dict)
    unsettled: dict[str, str] = field(default_factory=dict)
    running: dict[int, str] = field(default_factory=dict)
    saved: set[str] = field(default_factory=set)
    notices: dict[str, float] = field(default_factory=dict)

    def take(self, worker: int, event: WorkerEvent) -> None:
        """Update the account with one event of a worker."""
        if isinstance(event, CellDone | CellFailed | CellInterrupted | CellLost):
            self.running.pop(worker, None)
        match event:
            case CellStarted():
                self.running[worker] = event.cell
            case CellUnsettled():
                self.unsettled[event.cell] = event.reason
            case CellFailed():
                self.failures[event.cell] = event.reason
            case CellDone(status="failed"):
                self.failures[event.cell] = event.reason or ""
            case CellDone():  # perhaps by another worker than the one that failed
                self.failures.pop(event.cell, None)
            case CellInterrupted():
                self.saved.add(event.cell)

    def is_news(self, message: str) -> bool:
        """Return whether a notice is new, because it was not given in the last NOTICE_SECONDS. In any case, store that
        it is given now."""
        before, self.notices[message] = self.notices.get(message), time.monotonic()
        return before is None or self.notices[message] - before > NOTICE_SECONDS

    def stopped(self) -> str:
        """Return in words which cells (runs) were saved after a signal to stop, and which were not."""
        if not self.running:
            return "every run under way was saved"
        lost = sorted(set(self.running.values()))
        saved = f"{len(self.saved)} run(s) under way were saved; " if self.saved else ""
        return f"{saved}{', '.join(lost)} ended without saving: they continue from their last checkpoint"


class Pool:
    """The worker processes of one run on this machine."""

    def __init__(self, plan: Plan, *, profile: bool, co2: float | None = None) -> None:
        with contextlib.ExitStack() as opened:  # closes everything if a worker cannot be started
            variables = _served(opened, plan)
            cells = _shared(opened, plan.store / "run.cells.json", [to_json(planned.cell) for planned in plan.todo])
            computed = _shared(opened, plan.store / "run.precomputed.json", plan.cost.calibration.precomputed)
            arguments = command(
                plan, cells=cells, precomputed=computed, device=plan.machine.device, profile=profile, co2=co2
            )
            self._told_to_stop = False
            self.interrupted = False  # whether a worker was interrupted by a signal of its own
            self.complaints: list[UserError] = []  # of workers that failed outside a cell
            self._failures: dict[int, ProcessFailed] = {}  # the last failure that each worker reported
            self.events: queue.Queue[tuple[int, WorkerEvent | None]] = queue.Queue()
            self._errors = [
                opened.enter_context(tempfile.TemporaryFile("a+", errors="replace"))
                for _ in range(min(plan.cost.workers, len(plan.todo)))
            ]
            devices = accelerators(plan.machine.device)
            share = sharing(plan.machine.device, len(self._errors) * plan.cost.ranks)
            self._command = [*arguments, "--share", str(share), "--parent", str(os.getpid())]
            self._restarts = MAX_RESTARTS
            self._environments = [
                child_environment(plan.cost.threads, devices=place(devices, number, ranks=plan.cost.ranks)) | variables
                for number in range(len(self._errors))
            ]
            self._groups = groups_for(plan)
            self.processes: list[subprocess.Popen[str]] = []
            for number in range(len(self._errors)):
                self.processes.append(self._started(number))
            self._open = opened.pop_all()
        for index in range(len(self.processes)):
            self._listen(index)

    def _started(self, index: int) -> subprocess.Popen[str]:
        """Start a worker, and return its process. It is in a session of its own, so that Ctrl-C in the terminal reaches
        only the main process, which then asks the worker to save."""
        process = subprocess.Popen(
            self._command,
            stdout=subprocess.PIPE,
            stderr=self._errors[index],
            text=True,
            start_new_session=True,
            env=self._environments[index],
        )
        if self._groups:  # set before the worker starts threads
            with contextlib.suppress(OSError):
                os.sched_setaffinity(process.pid, self._groups[index % len(self._groups)])
        return process

    def _listen(self, index: int) -> None:
        threading.Thread(target=self._read, args=(index, self.processes[index].stdout), daemon=True).start()

    def _read(self, index: int, stream: IO[str]) -> None:
        for line in stream:
            if isinstance(event := from_line(line), ProcessFailed):
                self._failures[index] = event
            elif event is not None:
                self.events.put((index, event))
        self.events.put((index, None))

    def bound_logs(self) -> None:
        """Empty each worker's log that exceeds MAX_LOG_BYTES, since a network may print at every step."""
        for errors in (file for file in self._errors if os.fstat(file.fileno()).st_size > MAX_LOG_BYTES):
            os.ftruncate(errors.fileno(), 0)

    def stop(self) -> None:
        """Ask every worker to save and end."""
        self._told_to_stop = True
        for process in self.processes:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGTERM)

    def is_alive(self) -> bool:
        """Return whether any worker is still running."""
        return any(process.poll() is None for process in self.processes)

    def kill(self) -> None:
        """Kill every worker that is still running, and all processes that it has started."""
        for process in self.processes:
            if process.poll() is None:
                elsewhere = _descendants(process.pid)  # torchrun starts ranks in sessions of their own
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(process.pid, signal.SIGKILL)  # the whole group at once, so that none of it starts another
                for pid in elsewhere:
                    with contextlib.suppress(ProcessLookupError, PermissionError):
                        os.kill(pid, signal.SIGKILL)

    def restarts(self, index: int, *, at: str | None) -> bool:
        """Restart a worker that has closed its output, if it was killed or its device no longer answers. Return whether
        it was restarted.

        Args:
            index: number of the worker.
            at: the cell that it was running; None: it was between cells. A kill within a cell does not count against
                MAX_RESTARTS, since a cell is given up after a few kills. A kill between cells counts, since it might
                recur for ever.
        """
        with contextlib.suppress(subprocess.TimeoutExpired):  # `ended` goes on waiting
            self.processes[index].wait(timeout=KILL_PATIENCE)
        code, failure = self.processes[index].returncode, self._failures.pop(index, None)
        killed = (code is not None and code < 0 and -code not in SIGNALS) or (failure is not None and failure.killed)
        if not (killed and at) and not (self._restarts and (killed or code == EXIT_RETRY)):
            if failure is not None:
                self._failures[index] = failure
            return False
        self._restarts -= not (killed and at)
        self.processes[index] = self._started(index)
        self._listen(index)
        return True

    def ended(self, index: int) -> UserError | None:
        """Wait for a worker that has closed its output, and return its error if it failed outside a cell; None
        otherwise, or if it is still tidying up after KILL_PATIENCE seconds."""
        try:
            code = self.processes[index].wait(timeout=KILL_PATIENCE)
        except subprocess.TimeoutExpired:
            return None  # it has closed its output, and may still be tidying up: `finish` waits
        self.interrupted |= code == EXIT_INTERRUPTED
        if code in (EXIT_OK, EXIT_FAILED, EXIT_INTERRUPTED) or (code < 0 and self._told_to_stop):
            return None  # SIGTERM ends a worker that does not yet, or no longer, handle signals
        errors = self._errors[index]
        errors.seek(0)
        self.complaints.append(complaint(code, self._failures.get(index), errors.read()))
        return self.complaints[-1]

    def finish(self, *, hurry: Callable[[], bool]) -> list[int]:
        """Wait until every worker has ended; kill them after STOP_PATIENCE seconds, or once `hurry` returns True.
        Return the ids of processes that cannot be killed, because the kernel waits for a device or a file system."""
        deadline = time.monotonic() + STOP_PATIENCE
        while self.is_alive():
            if hurry() or time.monotonic() > deadline:
                self.kill()
                break
            time.sleep(0.05)
        left = []
        for process in self.processes:
            try:
                process.wait(timeout=KILL_PATIENCE)
            except subprocess.TimeoutExpired:
                left.append(process.pid)
        self._open.close()
        return left


def groups_for(plan: Plan) -> list[set[int]]:
    """Return the groups of cores to which workers are bound, by turns, so that their memory stays near their cores.
    Empty if all memory is equally near, if a worker has more threads than a group has cores, or if workers use a
    GPU."""
    groups = environment.core_groups()
    fits = all(plan.cost.ranks * plan.cost.threads <= len(group) for group in groups)
    return groups if plan.machine.device == "cpu" and len(groups) > 1 and fits else []


def command(
    plan: Plan,
    *,
    cells: Path | str,
    precomputed: Path | str,
    device: str,
    profile: bool,
    co2: float | None = None,
    ranks: int | None = None,
) -> list[str]:
    """Return the command, as words, that starts a worker on this or another machine.

    Args:
        cells: the file of cells that the worker reads.
        precomputed: the file of measurements that it reads.
        device: such as "cpu", "cuda" or "auto".
        profile: whether it leaves a trace of each cell's first steps.
        co2: grams per kilowatt-hour, for the records; None: emissions are not recorded.
        ranks: processes of the worker on each of its machines; None: as the plan says.
    """
    alone = plan.cost.ranks == 1
    program = ["bench.worker"] if alone else ["bench.execute.torchrun", "--ranks", str(ranks or plan.cost.ranks)]
    words = [
        sys.executable,
        "-m",
        *program,
        "--store",
        str(plan.store.absolute()),
        "--study",
        Study(plan.store).identity().token or "",
        "--cells",
        str(cells),
        "--suite",
        plan.suite,
        "--device",
        device,
        "--threads",
        str(plan.cost.threads),
        "--precomputed",
        str(precomputed),
        "--run",
        secrets.token_hex(8),
    ]
    words += ["--data-root", str(plan.study.where.data_root.absolute())] if plan.study.where.data_root else []
    words += ["--co2", str(co2)] if co2 is not None else []
    return words + (["--profile"] if profile else [])


def complaint(code: int | None, failure: ProcessFailed | None, log: str) -> UserError:
    """Return the error that explains why a worker failed outside a cell.

    Args:
        code: its exit code; negative: minus the number of the signal that killed it; None: unknown.
        failure: what the worker reported; None if it crashed before it could report.
        log: its output, whose last line is used if it reported nothing.
    """
    if code is not None and code < 0:
        return UserError(f"A worker process was killed by {signal.Signals(-code).name}; is memory short?", CONTINUE)
    if code == EXIT_RETRY:
        what = f"The device stopped answering more than {MAX_RESTARTS} times in this run; see its driver's log."
        return UserError(what, CONTINUE)
    if failure is not None:
        return UserError(failure.what, failure.fix or CONTINUE)
    ended = "without a result" if code is None else f"with exit code {code}"
    return UserError(log.strip().rpartition("\n")[2] or f"A worker process ended {ended}.", CONTINUE)


@contextlib.contextmanager
def signals(numbers: Sequence[signal.Signals] = SIGNALS) -> Iterator[list[float]]:
    """Context manager within which signals that ask for a stop are only recorded. It yields the list of the times at
    which they came, by a monotonic clock in seconds. Under nohup, the closing of the terminal is not recorded but still
    ignored."""
    received: list[float] = []
    nohup = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    heeded = [number for number in numbers if not (nohup and number == signal.SIGHUP)]
    previous = {n: signal.signal(n, lambda *_: received.append(time.monotonic())) for n in heeded}
    try:
        yield received
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def refused(plan: Plan) -> list[Failure]:
    """Return those cells of a plan that cannot be run at all, each with its reason."""
    return [Failure(cell.name, str(cell.note)) for cell in plan.cells if cell.state == CellState.REFUSED]


def _served(opened: contextlib.ExitStack, plan: Plan) -> dict[str, str]:
    """Start NVIDIA's MPS until `opened` is closed, if `--share mps` asks for it. Return the environment variables by
    which workers find MPS; empty without MPS."""
    if plan.machine.share != "mps":
        return {}
    from bench.execute.sharing import served

    return opened.enter_context(served(plan.store))


def _shared(opened: contextlib.ExitStack, path: Path, content: Any) -> str:
    """Write a JSON file for the workers, which is deleted when `opened` is closed, and return its path. It lies beside
    `path`, with a temporary name; if this process is killed, the next run deletes it."""
    try:
        handle = opened.enter_context(files.temporary_file(path))
        handle.write(json.dumps(content).encode())
        handle.flush()
    except OSError as error:
        raise files.explain(error, path) from error
    return str(handle.name)


def run(
    plan: Plan,
    *,
    on_event: Callable[[int, WorkerEvent], None],
    tick: Callable[[], None],
    profile: bool = False,
    co2: float | None = None,
) -> list[Failure]:
    """Run all cells of a plan that are left to do. Return the cells that failed or could not be begun; all others are
    done.

    Args:
        on_event: called with (number of a worker, event) for each event; the number is -1 for messages of this process.
        tick: called several times a second, for the display.
        profile: whether workers leave a trace of each cell's first steps.
        co2: grams per kilowatt-hour, for the records; None: emissions are not recorded.

    Raises:
        Interrupted: a signal asked for a stop, or standard output was closed; the message says what was saved.
        UserError: the store cannot be written, a worker could not start, or it ended without a result.
    """
    Study(plan.store).create()
    if not plan.todo:
        return refused(plan)
    if not files.has_locks(plan.store):
        on_event(-1, Notice(message=NO_LOCKS.format(plan.store)))
    known = Study(plan.store).identity()
    with signals() as received:
        account, complaints, began = _work_off(plan, received, on_event=on_event, tick=tick, profile=profile, co2=co2)
    Study(plan.store).check_is(known)  # if the folder was replaced, all its cells would be reported as not done
    return unfinished(plan, account, complaints, began=began) + refused(plan)


def _work_off(
    plan: Plan,
    received: list[float],
    *,
    on_event: Callable[[int, WorkerEvent], None],
    tick: Callable[[], None],
    profile: bool,
    co2: float | None,
) -> tuple[Account, list[UserError], str]:
    """Start the workers and follow them until they have ended. Return (what they reported, errors of workers outside
    cells, the time at which they were started). `received`: times at which signals to stop came, to which a signal
    handler adds; other arguments are those of `run`."""
    hurry: Callable[[], bool] = lambda: len(received) > 1 and received[-1] - received[0] > KILL_SIGNAL_AFTER  # noqa: E731
    account, began = Account(), now()
    pool = Pool(plan, profile=profile, co2=co2)
    left: list[int] = []
    try:
        _forward_events(pool, account, on_event=on_event, tick=tick, received=received, hurry=hurry)
    except (BrokenPipeError, SystemExit) as error:  # rich turns the first into the second
        pool.stop()
        left = pool.finish(hurry=hurry)
        _drain(pool, account)
        raise Interrupted(f"standard output was closed; {account.stopped()}") from error
    except BaseException:
        pool.stop()
        raise
    finally:
        left = left or pool.finish(hurry=hurry)
    if received or pool.interrupted:
        hung = f"; process {', '.join(map(str, left))} could not be ended" if left else ""
        raise Interrupted(account.stopped() + hung)
    return account, pool.complaints, began


def _forward_events(
    pool: Pool,
    account: Account,
    *,
    on_event: Callable[[int, WorkerEvent], None],
    tick: Callable[[], None],
    received: list[float],
    hurry: Callable[[], bool],
) -> None:
    """Pass events on until every worker has ended or, after a signal to stop, until they have saved or time is up.

    Args:
        received: times at which signals to stop came, to which a signal handler adds.
        hurry: returns whether workers are to be killed at once.
    """

    def notice(message: str) -> None:
        if account.is_news(message):
            on_event(-1, Notice(message=message))

    alive, asked, killed = len(pool.processes), False, False
    while alive:
        if received and not asked:
            pool.stop()
            asked = True
            notice("Stopping: runs under way are being saved. Another signal ends them at once.")
        if received and (hurry() or time.monotonic() - received[0] > STOP_PATIENCE):
            pool.kill()
            killed = True
        tick()
        pool.bound_logs()
        try:
            index, event = pool.events.get(timeout=0.25)
        except queue.Empty:
            if killed and not pool.is_alive():
                return  # a child of a worker may keep the pipe open
            continue
        if event is None:
            if not received and pool.restarts(index, at=account.running.get(index)):
                if cell := account.running.get(index):
                    account.take(index, CellLost(cell=cell))
                    on_event(index, CellLost(cell=cell))
                    notice(f"A process was killed at {cell}; is memory short? Another takes its place.")
                continue
            alive -= 1
            if complaint := pool.ended(index):
                on_event(index, WorkerEnded())
                notice(complaint.what)
            continue
        account.take(index, event)
        if isinstance(event, Notice):
            notice(event.message)
        else:
            on_event(index, event)


def _drain(pool: Pool, account: Account) -> None:
    """Add to the account the events that are left in the queue after the workers have ended."""
    while True:
        try:
            index, event = pool.events.get(timeout=0.1)
        except queue.Empty:
            return
        if event is not None:
            account.take(index, event)


def unfinished(plan: Plan, account: Account, complaints: list[UserError], *, began: str) -> list[Failure]:
    """Return those cells of a plan that are not done, each with its reason.

    Args:
        account: what the workers reported.
        complaints: errors of workers outside cells.
        began: when the workers were started; an attempt that failed earlier is no reason.

    Raises:
        UserError: a cell is not done, and nobody reported why.
    """
    failures, unexplained = dict(account.failures), []
    for planned in plan.todo:
        directory = Study(plan.store).cell(planned.cell)
        name = directory.path.name
        if state_of(directory).name == CellState.DONE:
            failures.pop(name, None)
        elif name not in failures:
            last = attempt_status(attempts[-1]) if (attempts := directory.attempts()) else {}
            just_failed = last.get("outcome") == "failed" and str(last.get("started")) >= began
            if just_failed and not complaints:  # in another run; if a worker of ours broke, its error says more
                failures[name] = str(last.get("reason"))
            else:
                unexplained.append(name)
    if unexplained:
        count = f"{len(unexplained)} run(s) were not done, and no worker reported a reason ({unexplained[0]})."
        raise complaints[0] if complaints else UserError(count, CONTINUE)
    return [Failure(cell, reason) for cell, reason in (failures | account.unsettled).items()]


def _descendants(pid: int) -> list[int]:
    """Return the process ids of all descendants of a process; empty on a system without /proc."""
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            for child in map(int, task.read_text().split()):
                found += [child, *_descendants(child)]
    return found
