"""Events that a worker process reports to the processes that watch it: one line of JSON each, on a channel that the
code of a model cannot print to."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
from collections.abc import Callable
from dataclasses import dataclass

from bench.core.errors import Interrupted, ProcessKilled, UserError, explained


@dataclass(frozen=True, kw_only=True, slots=True)
class Advanced:
    """The progress of a job, reported from time to time for displays.

    Attributes:
        done, total: steps done, and steps in all, as the job counts them.
        phase: for example "training", "evaluating".
        loss: mean loss of the steps that were read last; None before the first reading, and for jobs without a loss.
        seconds: seconds spent on training so far.
        horizons: number of horizons (budgets) evaluated so far.
    """

    done: int
    total: int
    phase: str
    loss: float | None = None
    seconds: float | None = None
    horizons: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class CellStarted:
    """A worker has begun a cell."""

    cell: str
    model: str
    data: str
    seed: int


@dataclass(frozen=True, kw_only=True, slots=True)
class CellAdvanced:
    """The progress of a cell."""

    cell: str
    progress: Advanced


@dataclass(frozen=True, kw_only=True, slots=True)
class CellDone:
    """The cell has a record.

    Attributes:
        status: status in the record: "complete", "diverged", "oom" or "failed".
        reason: why the status is not "complete"; None if it is.
        seconds: seconds that the cell took, all attempts together.
    """

    cell: str
    status: str
    reason: str | None = None
    seconds: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class CellFailed:
    """An attempt at a cell failed and left no record."""

    cell: str
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class CellInterrupted:
    """A signal stopped an attempt at a cell; its state has been saved."""

    cell: str


@dataclass(frozen=True, kw_only=True, slots=True)
class CellLost:
    """Another process has taken the cell over, or the worker of the cell vanished."""

    cell: str


@dataclass(frozen=True, kw_only=True, slots=True)
class CellUnsettled:
    """The record of a cell is written, but its weights or checkpoints could not be moved or deleted."""

    cell: str
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Notice:
    """One line of text to show to the user."""

    message: str


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkerEnded:
    """A worker ended while it had no cell; reported by the executor that started the worker."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ProcessFailed:
    """A process failed outside a cell and ends.

    Attributes:
        what: what is wrong.
        fix: what to do about it; "" if that is not known.
        killed: whether a child process of it was killed.
    """

    what: str
    fix: str = ""
    killed: bool = False


WorkerEvent = (
    CellStarted
    | CellAdvanced
    | CellDone
    | CellFailed
    | CellInterrupted
    | CellLost
    | CellUnsettled
    | Notice
    | WorkerEnded
    | ProcessFailed
)
KINDS: dict[str, type[WorkerEvent]] = {kind.__name__: kind for kind in WorkerEvent.__args__}  # type: ignore[attr-defined]


EVENT_PREFIX = '{"event": '  # the beginning of every event's JSON


def to_line(event: WorkerEvent) -> str:
    """Return the event as one line of JSON, without a newline."""
    return json.dumps({"event": type(event).__name__, **dataclasses.asdict(event)})


def from_line(line: str) -> WorkerEvent | None:
    """Return the event at the end of a line; None if there is none. In a log, text printed without a newline may
    precede the event."""
    try:
        body = json.loads(line[max(0, line.find(EVENT_PREFIX)) :])
        kind = KINDS[body.pop("event")]
        if kind is CellAdvanced:
            body["progress"] = Advanced(**body["progress"])
        return kind(**body)
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


def reports_failure(main: Callable[[list[str] | None], int]) -> Callable[[list[str] | None], int]:
    """Wrap the `main` of a child process so that a failure is reported to its parent as a `ProcessFailed` event."""

    @functools.wraps(main)
    def reporting(argv: list[str] | None = None) -> int:
        try:
            return main(argv)
        except Interrupted:
            raise
        except Exception as error:
            told = explained(error) or UserError(f"{type(error).__name__}: {error}")
            with contextlib.suppress(OSError, ValueError):  # the parent has closed the channel
                event = ProcessFailed(what=told.what, fix=told.fix, killed=isinstance(told, ProcessKilled))
                print(to_line(event), flush=True)
            raise

    return reporting


def last_failure(lines: list[str]) -> ProcessFailed | None:
    """Return the last failure among the lines that a process printed; None without one."""
    events = map(from_line, reversed(lines))
    return next((event for event in events if isinstance(event, ProcessFailed)), None)
