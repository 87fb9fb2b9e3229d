"""Runs a plan on this machine: a few worker processes, their events to the display, their logs to files.

A worker of several ranks is started through torchrun.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, NamedTuple

from bench.core.environment import now
from bench.core.errors import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_OK, Interrupted, UserError
from bench.core.spec import to_json
from bench.core.subprocesses import child_environment
from bench.plan import plan as planner
from bench.plan.plan import Plan
from bench.store.study import Study

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR2)  # Ctrl-C; what clusters send before they end a job
STOP_PATIENCE = 60.0  # seconds that workers get to save after a signal


class Failure(NamedTuple):
    """A cell that could not be run, and why."""

    cell: str
    reason: str


class Pool:
    """The worker processes of one run."""

    def __init__(self, plan: Plan, *, data_root: Path | None, profile: bool) -> None:
        ordered = sorted(plan.todo, key=planner.order_key)
        self._cells = _handed_over("cells", [to_json(planned.cell) for planned in ordered])
        self._known = _handed_over("known", plan.known)
        program = ["bench.worker"] if plan.ranks == 1 else ["bench.execute.torchrun", "--ranks", str(plan.ranks)]
        command = [
            sys.executable, "-m", *program, "--store", str(plan.store), "--cells", self._cells.name,
            "--suite", plan.suite, "--device", plan.device, "--threads", str(plan.threads),
            "--parent", str(os.getpid()), "--known", self._known.name, "--since", now(),
        ]  # fmt: skip
        command += ["--data-root", str(data_root)] if data_root else []
        command += ["--profile"] if profile else []
        self.interrupted = False  # a worker was: somebody sent a signal to it alone
        self.events: queue.Queue[tuple[int, dict[str, Any] | None]] = queue.Queue()
        self._errors = [
            tempfile.TemporaryFile("w+")  # noqa: SIM115 - lives as long as the worker
            for _ in range(min(plan.workers, len(ordered)))
        ]
        # A session of their own: Ctrl-C in the terminal reaches only this process, which then asks them to save.
        self.processes = [
            subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=error, text=True, env=child_environment(plan.threads),
                start_new_session=True,
            )
            for error in self._errors
        ]  # fmt: skip
        for index, process in enumerate(self.processes):
            threading.Thread(target=self._read, args=(index, process.stdout), daemon=True).start()

    def _read(self, index: int, stream: IO[str]) -> None:
        for line in stream:
            with contextlib.suppress(ValueError):
                self.events.put((index, json.loads(line)))
        self.events.put((index, None))

    def stop(self) -> None:
        """Ask every worker to save and leave."""
        for process in self.processes:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGTERM)

    def killed(self, index: int) -> int | None:
        """The signal that ended a worker which says nothing more; None if it ended by itself, or is about to."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = self.processes[index].wait(timeout=1.0)
            return -code if code < 0 else None
        return None

    def finish(self) -> list[str]:
        """Wait for the workers; returns the error output of those that failed outside a cell."""
        complaints = []
        for process, errors in zip(self.processes, self._errors, strict=True):
            try:
                code = process.wait(timeout=STOP_PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()
                code = process.wait()
            self.interrupted |= code == EXIT_INTERRUPTED
            errors.seek(0)
            text = errors.read().strip()
            if code < 0:
                complaints.append(f"A worker process was killed by signal {-code}; is memory short?")
            elif code not in (EXIT_OK, EXIT_FAILED, EXIT_INTERRUPTED):
                complaints.append(_last_error(text) or f"A worker process ended with exit code {code}.")
        return complaints


def _handed_over(name: str, content: Any) -> IO[str]:
    """A file for the workers to read; it goes when it is closed."""
    file = tempfile.NamedTemporaryFile("w", suffix=".json", prefix=f"vit-bench-{name}-")  # noqa: SIM115
    json.dump(content, file)
    file.flush()
    return file


def run(
    plan: Plan,
    *,
    on_event: Callable[[int, dict[str, Any]], None],
    tick: Callable[[], None],
    data_root: Path | None = None,
    profile: bool = False,
) -> list[Failure]:
    """Run everything that is left to do. Returns the cells that failed.

    Raises:
        Interrupted: a signal asked for a stop, or nobody reads the output any longer; the workers have saved.
        UserError: the store cannot be written, or a worker could not start.
    """
    Study(plan.store).create()
    if not plan.todo:
        return []
    received: list[int] = []
    previous = {n: signal.signal(n, lambda number, _: received.append(number)) for n in SIGNALS}
    failures: dict[str, str] = {}
    pool = Pool(plan, data_root=data_root, profile=profile)
    try:
        alive, asked = len(pool.processes), False
        while alive:
            if received and not asked:
                pool.stop()
                asked = True
            with contextlib.suppress(queue.Empty):
                index, event = pool.events.get(timeout=0.25)
                if event is None:
                    alive -= 1
                    if number := pool.killed(index):
                        on_event(index, {"event": "killed", "signal": number})
                    continue
                if event["event"] == "failed":
                    failures[event["cell"]] = event["reason"]
                elif event["event"] == "done":  # by another worker
                    failures.pop(event["cell"], None)
                on_event(index, event)
            tick()
    except (BrokenPipeError, SystemExit) as error:  # rich turns the first into the second
        pool.stop()
        raise Interrupted("nobody reads the output; every running cell was saved") from error
    except BaseException:
        pool.stop()
        raise
    finally:
        complaints = pool.finish()
        for number, handler in previous.items():
            signal.signal(number, handler)
    if received or pool.interrupted:
        raise Interrupted("every running cell was saved")
    undone = [c for c in plan.todo if not Study(plan.store).cell(c.cell).record.exists()]
    if complaints and len(undone) > len(failures):
        what, _, advice = complaints[0].partition("\n  ")
        raise UserError(what, advice or "Run the same command to continue; nothing done is lost.")
    return [Failure(cell, reason) for cell, reason in failures.items()]


def _last_error(text: str) -> str:
    """What a worker said when it ended: the last of its errors, without what libraries printed before it."""
    return f"\n{text}".rpartition("\nerror: ")[2].strip()
