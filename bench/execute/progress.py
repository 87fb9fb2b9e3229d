"""Shows the progress of a run: as a table that is redrawn on a terminal, or as plain lines in a log; and the time that
is left."""

from __future__ import annotations

import time
from dataclasses import dataclass

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from bench.core.console import add_row, make_table, write
from bench.core.events import (
    Advanced,
    CellAdvanced,
    CellDone,
    CellFailed,
    CellStarted,
    Notice,
    WorkerEvent,
)
from bench.core.formatting import duration
from bench.plan.plan import Plan

LOG_EVERY = 15.0  # seconds between plain lines
BAR_CHARACTERS = 20  # width of a progress bar
ROUNDING = 1e-9  # relative rounding error of sums that are updated step by step
TRUSTED_SHARE = 0.02  # fraction of the work done from which the time left follows the run's own speed, not the plan's


@dataclass(frozen=True, kw_only=True)
class RunningCell:
    """The cell that one worker is running.

    Attributes:
        name: name of the cell's folder.
        progress: its newest progress report; None before the first.
        since: when that report came or, before the first, when the cell was started; by a monotonic clock in seconds.
    """

    name: str
    progress: Advanced | None
    since: float


class LiveProgress:
    """The display of a run's progress, to be used as a context manager: pass it every event of the workers, and call
    `refresh` often."""

    def __init__(self, plan: Plan, console: Console) -> None:
        self.plan, self.console = plan, console
        self.cells = {cell.name: cell for cell in plan.todo}
        self.expected = {cell.name: cell.seconds or 1.0 for cell in plan.todo}  # seconds
        self.fraction = {cell.name: cell.fraction for cell in plan.todo}  # done, of the expected time
        self.at_start = dict(self.fraction)
        self._total = sum(self.expected.values())  # seconds, as are the next two
        self._done = self._begun = sum(self.expected[name] * done for name, done in self.fraction.items())
        self.running: dict[int, RunningCell] = {}  # by worker
        self.finished = set[str]()  # a set: a cell whose folder is moved away while it runs is finished twice
        self.failed: dict[str, str] = {}
        self.started = self.last_line = time.monotonic()
        self.live = Live(console=console, refresh_per_second=4, transient=True) if console.is_terminal else None

    def __enter__(self) -> LiveProgress:
        if self.live:
            self.live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.live:
            self.live.stop()

    def event(self, worker: int, event: WorkerEvent) -> None:
        """Process one event of a worker."""
        match event:
            case Notice():
                self._line(event.message)
                return
            case CellStarted():
                self.running[worker] = RunningCell(name=event.cell, progress=None, since=time.monotonic())
                return
            case CellAdvanced():
                self.running[worker] = RunningCell(name=event.cell, progress=event.progress, since=time.monotonic())
                self._update()
                return
        self.running.pop(worker, None)
        match event:
            case CellDone():
                self._set(event.cell, 1.0)
                self.finished.add(event.cell)
                self.failed.pop(event.cell, None)  # another worker could run it
                if event.status != "complete":
                    self._line(f"{event.status}: {event.cell}: {event.reason}")
            case CellFailed():
                if event.reason not in self.failed.values():  # the end of the run says what to do about it
                    self._line(f"failed: {event.cell}: {event.reason.splitlines()[0]}")
                self.failed[event.cell] = event.reason
        if not self.live:
            self._line(self._summary())

    def refresh(self) -> None:
        """Update the display to the present state."""
        self._update()
        if self.live:
            self.live.update(self._render())
        elif time.monotonic() - self.last_line > LOG_EVERY:
            self._line("; ".join([self._summary(), *map(self._describe, self.running.values())]))

    def seconds_left(self) -> float:
        """Return how many seconds the run will still take, not counting failed cells. The plan says it at first; later
        it follows from the speed of the run so far."""
        total, done = self._total - self._failed_of(None), self._done - self._failed_of(self.fraction)
        gained = done - (self._begun - self._failed_of(self.at_start))
        elapsed = time.monotonic() - self.started
        if total - done < ROUNDING * self._total:
            return 0.0
        if gained < TRUSTED_SHARE * total or not total:
            return max(0.0, self.plan.seconds * total / self._total - elapsed)
        return (total - done) * elapsed / gained

    def _update(self) -> None:
        for running in self.running.values():
            if running.progress is not None:
                self._set(running.name, self._fraction_of(running, running.progress))

    def _fraction_of(self, running: RunningCell, progress: Advanced) -> float:
        """Return the fraction of a running cell's expected time that is done, with its training and the evaluations of
        its horizons. An evaluation under way counts by its seconds so far, up to 95 % of those expected."""
        cell = self.cells[running.name]
        trained = progress.done / progress.total if progress.total else 0.0
        if not cell.evaluate_share:
            return min(0.99, trained)
        horizons = len(cell.cell.horizons)
        evaluated: float = progress.horizons
        if progress.phase == "evaluating":
            expected = cell.evaluate_share * self.expected[cell.name] / horizons
            evaluated += min(0.95, (time.monotonic() - running.since) / expected) if expected else 0.0
        return min(0.99, (1 - cell.evaluate_share) * trained + cell.evaluate_share * min(1.0, evaluated / horizons))

    def _set(self, name: str, fraction: float) -> None:
        self._done += self.expected[name] * (fraction - self.fraction[name])
        self.fraction[name] = fraction

    def _failed_of(self, fraction: dict[str, float] | None) -> float:
        """Return the expected seconds of the failed cells. `fraction`: cell -> the fraction of its time to count; None:
        all of its time."""
        return sum(self.expected[name] * (fraction[name] if fraction else 1.0) for name in self.failed)

    def _line(self, text: str) -> None:
        self.last_line = time.monotonic()
        write(self.console, text)

    def _summary(self) -> str:
        done = (self._done - self._failed_of(self.fraction)) / max(1e-9, self._total)
        elapsed, seconds = duration(time.monotonic() - self.started), self.seconds_left()
        late = not seconds and len(self.finished) + len(self.failed) < len(self.expected)
        left = "longer than planned" if late else f"about {duration(round(seconds))} left"
        cells = f"{len(self.finished)} of {len(self.expected)} runs"
        cells += f", {len(self.failed)} failed" if self.failed else ""
        return f"[{elapsed}] {done:.0%} done, {cells}, {left}"

    def _render(self) -> Group:
        table = make_table("worker", "model", "data", "seed", "progress", "phase", "loss")
        for worker, running in sorted(self.running.items()):
            cell, done = self.cells[running.name].cell, self.fraction[running.name]
            bar = "━" * round(BAR_CHARACTERS * done) + "─" * (BAR_CHARACTERS - round(BAR_CHARACTERS * done))
            loss = f"{running.progress.loss:.3f}" if running.progress and running.progress.loss is not None else ""
            what = (cell.model, cell.data_name, str(cell.seed))
            add_row(table, str(worker), *what, f"{bar} {done:4.0%}", _phase(running), loss)
        return Group(table, Text(self._summary()))

    def _describe(self, running: RunningCell) -> str:
        cell, done = self.cells[running.name].cell, self.fraction[running.name]
        return f"{cell.model} on {cell.data_name} seed {cell.seed} {done:.0%} ({_phase(running)})"


def _phase(running: RunningCell) -> str:
    return running.progress.phase if running.progress else "starting"
