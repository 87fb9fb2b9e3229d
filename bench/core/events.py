"""Events that a worker reports to its watchers: one line of JSON each, on a channel that a network cannot print to."""

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
    """How far a job is; reported now and then, for displays.

    Attributes:
        done, total: in steps of the job's own.
        phase: for example "training", "evaluating".
        loss: mean of the last steps looked at; None before the first look, and of jobs without one.
        seconds: spent on training so far.
        horizons: evaluated so far.
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
    """How far the cell is."""

    cell: str
    progress: Advanced


@dataclass(frozen=True, kw_only=True, slots=True)
class CellDone:
    """The cell has a record.

    Attributes:
        status: of the record: "complete", "diverged", "oom" or "failed".
        reason: of another status than "complete".
        seconds: that the cell took, in all attempts.
    """

    cell: str
    status: str
    reason: str | None = None
    seconds: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class CellFailed:
    """The attempt failed and left no record."""

    cell: str
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class CellInterrupted:
    """A signal stopped the attempt; everything is saved."""

    cell: str


@dataclass(frozen=True, kw_only=True, slots=True)
class CellLost:
    """Another runner has taken the cell over, or its worker vanished."""

    cell: str


@dataclass(frozen=True, kw_only=True, slots=True)
class CellUnsettled:
    """The record is written, but weights or checkpoints could not be tidied."""

    cell: str
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Notice:
    """One line for the user."""

    message: str


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkerEnded:
    """A worker ended outside a cell; its executor says so."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ProcessFailed:
    """The process failed outside a cell, and ends.

    Attributes:
        what: what is wrong.
        fix: what to do about it; "" where that is not known.
        killed: whether a process that it started was killed.
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


EVENT_PREFIX = '{"event": '  # of a line


def to_line(event: WorkerEvent) -> str:
    """The event as one line of JSON."""
    return json.dumps({"event": type(event).__name__, **dataclasses.asdict(event)})


def from_line(line: str) -> WorkerEvent | None:
    """The event that a line ends with, in a log perhaps after what was printed without a newline; None for others."""
    try:
        body = json.loads(line[max(0, line.find(EVENT_PREFIX)) :])
        kind = KINDS[body.pop("event")]
        if kind is CellAdvanced:
            body["progress"] = Advanced(**body["progress"])
        return kind(**body)
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


def reports_failure(main: Callable[[list[str] | None], int]) -> Callable[[list[str] | None], int]:
    """Wrap the `main` of a process that another one started: it learns of a failure as an event."""

    @functools.wraps(main)
    def reporting(argv: list[str] | None = None) -> int:
        try:
            return main(argv)
        except Interrupted:
            raise
        except Exception as error:
            told = explained(error) or UserError(f"{type(error).__name__}: {error}")
            with contextlib.suppress(OSError, ValueError):  # nobody listens
                event = ProcessFailed(what=told.what, fix=told.fix, killed=isinstance(told, ProcessKilled))
                print(to_line(event), flush=True)
            raise

    return reporting


def last_failure(lines: list[str]) -> ProcessFailed | None:
    """The failure that a process reported last, of all that it wrote."""
    events = map(from_line, reversed(lines))
    return next((event for event in events if isinstance(event, ProcessFailed)), None)
