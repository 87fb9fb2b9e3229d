"""The interface of executors: workers of one kind, started elsewhere, and how each of them ended.

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
    """The needs of each worker of a kind.

    Attributes:
        gpus, cpus, memory: on each of its `nodes`; memory in bytes. hours: for its longest cell, with a margin.
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
        arguments: its program's name first.
        environment: variables beside those that it finds.
        folder: for the executor's files and the workers' logs. Its name is like no other.
        number: of the kind of workers.
    """

    arguments: tuple[str, ...]
    environment: Mapping[str, str]
    folder: Path
    number: int = 0


@dataclass(frozen=True)
class Ended:
    """How a worker ended.

    Attributes:
        code: its exit code, below 0 the signal that killed it; None: it ended with its machine, or never began.
        log: the end of all that it wrote.
        cancelled: by a person: it is not replaced, and this says which it was.
    """

    code: int | None
    log: str = ""
    cancelled: str = ""


class Executor(Protocol):
    """Starts workers of a kind. Made with what each of them needs, and their command.

    Attributes:
        slots: workers that may run at once.
        queue: a later process adopts workers by this name; "" where they end with this process.
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
        """Queue so many more workers."""

    def ended(self) -> list[Ended]:
        """The workers that ended since the last call."""

    def stop(self, *, running: bool = True) -> None:
        """Call off queued workers, and have those that run save and end; does not wait for it."""

    def adopt(self, queue: str) -> int:
        """Follow those of an earlier process that have not ended. Returns how many."""
        return 0

    def call_off(self, queue: str) -> None:
        """Cancel those of an earlier process that have not ended: they have nothing left to do."""

    def close(self) -> None:
        """Nothing of what is followed is left running."""


def tail(log: Path) -> str:
    """The end of a log."""
    return log.read_bytes()[-LOG_TAIL_BYTES:].decode(errors="replace")
