"""The interface of executors on clusters. Each executor object starts workers of one kind and tells how each of them
ended.

The study's folder alone says which cells are done: an executor neither assigns cells nor carries results.
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
        cpus, gpus: processor cores and GPUs on each of its machines.
        nodes: number of its machines.
        memory: bytes of host memory on each of its machines.
        hours: wall-clock time for its longest cell, with a margin.
        options: name -> value, as given with `--job NAME=VALUE`. They are the cluster's own options, and override the
            attributes above.
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
        arguments: words of the command, beginning with the program's name.
        environment: variables to set in addition to those of the machine on which the worker runs.
        folder: folder for the executor's files and the workers' logs; its name is unique.
        number: number of the kind of worker, among the kinds of a run.
    """

    arguments: tuple[str, ...]
    environment: Mapping[str, str]
    folder: Path
    number: int = 0


@dataclass(frozen=True)
class Ended:
    """How a worker ended.

    Attributes:
        code: its exit code, or minus the number of the signal that killed it; None: its machine failed, or it never
            began.
        log: the end of its output.
        cancelled: the job's name if a person cancelled it, so that it is not replaced; "" otherwise.
    """

    code: int | None
    log: str = ""
    cancelled: str = ""


class Executor(Protocol):
    """Starts workers of one kind. Its constructor takes (needs: `Resources`, command: `WorkerCommand`).

    Attributes:
        slots: how many workers may run at once.
        queue: name by which a later process finds these workers again; "" if they end with this process.
        alive: one entry for each worker that is queued or running.
        waits: why workers have been queued for long, in the cluster's words; "" if none has.

    Raises:
        UserError: the cluster's library or programs are missing, or refuse the resources. From any method: the cluster
            does not answer.
    """

    slots: int = 256
    queue: str = ""
    waits: str = ""
    alive: Collection[Any]

    def submit(self, number: int) -> None:
        """Queue `number` more workers, which begin as soon as the cluster has room."""

    def ended(self) -> list[Ended]:
        """Return how workers ended, for each that ended since the last call."""

    def stop(self, *, running: bool = True) -> None:
        """Cancel queued workers and, if `running`, ask running ones to save and end. Do not wait until they have
        ended."""

    def adopt(self, queue: str) -> int:
        """From now on count the workers of an earlier process that are queued or running under the name `queue` as
        workers of this executor. Return how many there are."""
        return 0

    def call_off(self, queue: str) -> None:
        """Cancel the workers of an earlier process that are queued or running under the name `queue`, since they have
        nothing left to do."""

    def close(self) -> None:
        """End all workers that this executor started or adopted."""


def tail(log: Path) -> str:
    """Return the last LOG_TAIL_BYTES bytes of a log file as text."""
    return log.read_bytes()[-LOG_TAIL_BYTES:].decode(errors="replace")
