"""Events that a worker process reports to the processes that watch it. Each event is one line of JSON, on a channel to
which the code of a model cannot print.

In all events, `cell` is the folder name of the cell (a training run with its evaluations) that the worker runs.
"""

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
        done, total: number of steps done, and of all steps, as the job counts them.
        phase: what the job does at present, for example "training" or "evaluating".
        loss: mean loss of the last steps whose losses were copied from the device; None before the first such copy, and
            for jobs without a loss.
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
    """Event: a worker has begun a cell (a training run with its evaluations).

    Attributes:
        cell: folder name of the cell.
        model, data, seed: the cell's model, pre-training data set and seed.
    """

    cell: str
    model: str
    data: str
    seed: int


@dataclass(frozen=True, kw_only=True, slots=True)
class CellAdvanced:
    """Event: the training or evaluation of a cell has made progress. `cell`: folder name of the cell."""

    cell: str
    progress: Advanced


@dataclass(frozen=True, kw_only=True, slots=True)
class CellDone:
    """Event: a cell (a training run with its evaluations) has ended, and its record is written.

    Attributes:
        cell: folder name of the cell.
        status: status in the record: "complete", "diverged", "oom" (out of memory) or "failed".
        reason: why the status is not "complete"; None if it is.
        seconds: wall-clock seconds of all attempts at the cell; None if not known.
    """

    cell: str
    status: str
    reason: str | None = None
    seconds: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class CellFailed:
    """Event: an attempt to run a cell failed and left no record. `cell`: folder name of the cell. `reason`: why the
    attempt failed."""

    cell: str
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class CellInterrupted:
    """Event: a signal stopped an attempt to run a cell, after the state of the training was saved. `cell`: folder name
    of the cell."""

    cell: str


@dataclass(frozen=True, kw_only=True, slots=True)
class CellLost:
    """Event: another process has taken over a cell from its worker, or that worker has vanished. `cell`: folder name of
    the cell."""

    cell: str


@dataclass(frozen=True, kw_only=True, slots=True)
class CellUnsettled:
    """Event: the record of a cell is written, but the cell's weights or checkpoints could not be moved or deleted.
    `cell`: folder name of the cell. `reason`: why they could not."""

    cell: str
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Notice:
    """Event: there is one line of text, `message`, to show to the user."""

    message: str


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkerEnded:
    """Event: a worker ended while it had no cell. The executor that started the worker reports it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ProcessFailed:
    """Event: a process failed while it worked on no cell, and ends.

    Attributes:
        what: what is wrong.
        fix: what the user can do about it; "" if that is not known.
        killed: whether a child process of that process was killed.
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
    """Return the event that a line ends with; None if the line ends with no event. In a log, text that was printed
    without a newline may precede the event."""
    try:
        body = json.loads(line[max(0, line.find(EVENT_PREFIX)) :])
        kind = KINDS[body.pop("event")]
        if kind is CellAdvanced:
            body["progress"] = Advanced(**body["progress"])
        return kind(**body)
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


def reports_failure(main: Callable[[list[str] | None], int]) -> Callable[[list[str] | None], int]:
    """Wrap the `main` of a child process so that its failure is reported to the parent process as a `ProcessFailed`
    event on standard output."""

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
    """Return the last `ProcessFailed` event in the lines that a process printed; None if there is none."""
    events = map(from_line, reversed(lines))
    return next((event for event in events if isinstance(event, ProcessFailed)), None)
