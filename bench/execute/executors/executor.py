"""The interface of executors, which start workers of one kind elsewhere and tell how each of them ended.

The study's folder remains the only truth: an executor neither assigns cells nor carries results.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

SAVE_SECONDS = 60.0  # seconds that a worker gets to save when it is to end
LOG_TAIL_BYTES = 20_000  # bytes of a log in which the last error message is looked for


@dataclass(frozen=True, kw_only=True)
class Resources:
    """The resources that each worker of one kind needs.

    Attributes:
        gpus, cpus, memory: on each of its `nodes` machines; memory in bytes.
        hours: wall time for its longest cell, with a margin.
        options: NAME=VALUE pairs of `--job`, as the cluster takes them; they override what is here.
    """

    cpus: int = 1
    gpus: int = 0
    nodes: int = 1
    memory: int
    hours: float
    options: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class WorkerCommand:
    """How a worker is started.

    Attributes:
        arguments: words of the command, its program's name first.
        environment: variables that are set in addition to those of its surroundings.
        folder: for the executor's files and the workers' logs. Its name is unique.
        number: number of the kind of workers.
    """

    arguments: tuple[str, ...]
    environment: Mapping[str, str]
    folder: Path
    number: int = 0


@dataclass(frozen=True)
class Ended:
    """How a worker ended.

    Attributes:
        code: its exit code, or minus the signal that killed it; None: it ended with its machine, or never began.
        log: the end of all that it wrote.
        cancelled: which job it was, where a person cancelled it, so that it is not replaced; "" otherwise.
    """

    code: int | None
    log: str = ""
    cancelled: str = ""


class Executor(Protocol):
    """Starts workers of one kind. Its constructor takes what each of them needs, and their command.

    Attributes:
        slots: workers that may run at once.
        queue: name by which a later process adopts the workers; "" where they end with this process.
        alive: one entry for each worker that is queued or runs.
        waits: why workers have been queued for long, in the cluster's words; "" where none has.

    Raises:
        UserError: its library or its programs are missing, or refuse the resources; the cluster does not answer, in any
            method.
    """

    slots: int = 256
    queue: str = ""
    waits: str = ""
    alive: Collection[Any]

    def submit(self, number: int) -> None:
        """Queue `number` more workers."""

    def ended(self) -> list[Ended]:
        """Return the workers that ended since the last call."""

    def stop(self, *, running: bool = True) -> None:
        """Cancel queued workers and, if `running`, ask running ones to save and end. Do not wait for that."""

    def adopt(self, queue: str) -> int:
        """Follow workers of an earlier process that have not ended. Return how many there are."""
        return 0

    def call_off(self, queue: str) -> None:
        """Cancel workers of an earlier process that have not ended, since they have nothing left to do."""

    def close(self) -> None:
        """End all workers that are followed."""


def tail(log: Path) -> str:
    """Return the last LOG_TAIL_BYTES of a log as text."""
    return log.read_bytes()[-LOG_TAIL_BYTES:].decode(errors="replace")
