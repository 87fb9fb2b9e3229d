"""The interface of executors: workers of one kind, started elsewhere, and how each of them ended.

The study's folder remains the only truth: an executor neither assigns cells nor carries results.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from bench.core.errors import UserError
from bench.store.lease import RUNNER

SAVE_SECONDS = 60.0  # seconds that a worker gets to save when it is to end
LOG_TAIL_CHARACTERS = 20_000  # characters of a log in which the last error message is looked for


@dataclass(frozen=True, kw_only=True)
class Resources:
    """The needs of each worker of a kind.

    Attributes:
        gpus, cpus, memory: on each of its `nodes`; memory in bytes. hours: for its longest cell, with a margin.
        options: NAME=VALUE pairs of `--job`, as the library takes them; they override what is here.
    """

    cpus: int = 1
    gpus: int = 0
    nodes: int = 1
    memory: int
    hours: float
    options: Mapping[str, Any]


@dataclass(frozen=True)
class Ended:
    """How a worker ended.

    Attributes:
        code: its exit code, below 0 the signal that killed it; None: it ended with its machine, or never began.
        log: the end of all that it wrote.
    """

    code: int | None
    log: str = ""


class WorkerCommand:
    """A worker's command as a function to be called elsewhere; the worker ends when the process that called it does."""

    def __init__(self, command: Sequence[str], *, environment: Mapping[str, str], log: Path) -> None:
        self.command, self.environment, self.log = tuple(command), dict(environment), log

    def __call__(self, *more: str, runner: str = "") -> Ended:
        """Run it to its end. `more`: further arguments of the command. runner: a name for who runs it."""
        began = self.log.stat().st_size if self.log.exists() else 0
        with open(self.log, "ab") as log:
            process = subprocess.Popen(
                [*self.command, *more, "--parent", str(os.getpid())],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                env=os.environ | self.environment | {RUNNER: runner},
            )
        self._running, self._waiting = process, threading.Thread(target=process.wait, daemon=True)
        self._waiting.start()  # not here: a signal's handler that calls `stop` could not wait for it too
        try:
            while self._waiting.is_alive():  # Ray's interruption is no signal that would end one long wait
                self._waiting.join(timeout=0.5)
        except BaseException:  # cancelled
            self.stop()
            raise
        code = process.returncode
        with open(self.log, "rb") as written:
            written.seek(began)
            return Ended(code, written.read()[-LOG_TAIL_CHARACTERS:].decode(errors="replace"))

    def stop(self) -> None:
        """Have it save and end."""
        with contextlib.suppress(ProcessLookupError):
            self._running.send_signal(signal.SIGTERM)
        self._waiting.join(timeout=SAVE_SECONDS)
        if self._waiting.is_alive():
            self._running.kill()
            self._waiting.join()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in ("_running", "_waiting")}


class Executor(Protocol):
    """Starts workers. Made with the folder for its files, and what each worker needs.

    Raises:
        UserError: its library is missing, or refuses the resources.
    """

    slots: int  # workers that may run at once

    def submit(self, works: Sequence[WorkerCommand]) -> None:
        """Queue workers."""

    def ended(self) -> list[Ended]:
        """Those that ended since the last call."""

    def stop(self) -> None:
        """Have every worker save and end; does not wait for it."""

    def names(self) -> tuple[str, ...]:
        """The names of submitted workers that go on when this process ends: another can `adopt` them by these; () where
        they end too."""

    def adopt(self, names: Sequence[str], folder: Path) -> int:
        """Follow those of an earlier process that have not ended; `folder` is the one that they were submitted with.
        Returns how many."""

    def call_off(self, names: Sequence[str], folder: Path) -> None:
        """Cancel those of an earlier process that have not ended: they have nothing left to do."""

    def leave(self) -> None:
        """Follow nobody any longer."""

    def close(self) -> None:
        """Nothing of what is followed is left running."""


def load(name: str, *, package: str) -> Any:
    """A library that an executor needs.

    Raises:
        UserError: it is not installed.
    """
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise UserError(
            f"--executor {name} needs the package {package}.",
            f"Install it: pip install {package}, or pip install -e '.[{name}]'.",
        ) from error
