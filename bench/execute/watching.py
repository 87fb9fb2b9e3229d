"""Follows cells through their folders, whoever runs them: from the files that a worker writes, it derives the events
that the worker would send.

A look costs a few file operations for each cell that is left. Looks are spaced so that they take at most
MAX_POLLING_SHARE of the time, however many cells there are.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from pathlib import Path

from bench.core.cell_state import CellState
from bench.core.environment import now
from bench.core.events import (
    Advanced,
    CellAdvanced,
    CellDone,
    CellFailed,
    CellInterrupted,
    CellLost,
    CellStarted,
    WorkerEvent,
)
from bench.store.lease import is_held
from bench.store.study import CellDirectory, Study, attempt_status, state_of
from bench.study.cell import Cell

LOG_TAIL_BYTES = 4096  # bytes of a log of metrics in which its last line is looked for
MAX_POLLING_SHARE = 0.05  # fraction of the time that looks may take


class Watched:
    """Follows those cells of a study that are to be done.

    Attributes:
        cells: the cells, whose numbers in events are their indices here.
        began: when this began; failures of earlier attempts are no events.
        pause: least seconds to wait until the next look.
    """

    def __init__(self, study: Study, cells: Sequence[Cell]) -> None:
        self.cells = cells
        self._open = {number: study.cell(cell) for number, cell in enumerate(cells)}
        self._names = {number: directory.path.name for number, directory in self._open.items()}
        self._running: dict[int, WorkerEvent] = {}
        self._failed: dict[int, str] = {}  # number of a cell -> when its failed attempt began
        self._held = False
        self.began, self.pause = now(), 0.0

    def news(self) -> list[tuple[int, WorkerEvent]]:
        """Look at the folders, and return what has happened since the last look: (number of a cell, event) for each
        event."""
        began, events = time.monotonic(), list[tuple[int, WorkerEvent]]()
        for number, directory in list(self._open.items()):
            if (event := self._look(number, directory)) is not None:
                events.append((number, event))
        # a list and no generator, because every lease must be looked at each time
        self._held = any([is_held(self._open[number].lease) for number in self._running])
        self.pause = (time.monotonic() - began) / MAX_POLLING_SHARE
        return events

    def _look(self, number: int, directory: CellDirectory) -> WorkerEvent | None:
        name = self._names[number]
        if directory.record.exists() and (state := state_of(directory)).name == CellState.DONE:
            del self._open[number]
            self._running.pop(number, None)
            self._failed.pop(number, None)
            return CellDone(cell=name, status=state.without_result or "complete", reason=state.reason)
        if directory.lease.exists():
            cell = self.cells[number]
            if number not in self._running:
                self._running[number] = CellStarted(cell=name, model=cell.model, data=cell.data_name, seed=cell.seed)
                return self._running[number]
            progress = _last_line(directory)
            if progress is None or (event := CellAdvanced(cell=name, progress=progress)) == self._running[number]:
                return None
            self._running[number] = event
            return event
        was_running = self._running.pop(number, None) is not None
        if (was_running or number not in self._failed) and directory.path.exists():
            last = attempt_status(attempts[-1]) if (attempts := directory.attempts()) else {}
            if last.get("outcome") == "failed" and last["started"] >= self.began:
                if self._failed.get(number) == last["started"]:
                    return None
                self._failed[number] = last["started"]
                return CellFailed(cell=name, reason=str(last.get("reason")))
            if was_running and last.get("outcome") == "interrupted":
                return CellInterrupted(cell=name)
            if was_running:
                return CellLost(cell=name)
        return None

    def left(self) -> set[str]:
        """Return the names of those cells that are neither done nor failed."""
        return {self._names[number] for number in self._open if number not in self._failed}

    def held(self) -> bool:
        """Return whether, at the last look, a living process held the lease of any running cell."""
        return self._held


def _last_line(directory: CellDirectory) -> Advanced | None:
    """Return the newest progress report of a cell's last attempt; None if there is none yet."""
    path = Path(directory.attempts()[-1] / "metrics.jsonl") if directory.attempts() else None
    try:
        if path is not None:
            with open(path, "rb") as handle:
                handle.seek(max(0, os.fstat(handle.fileno()).st_size - LOG_TAIL_BYTES))
                lines = handle.read().splitlines()
            if lines:
                return Advanced(**{name: value for name, value in json.loads(lines[-1]).items() if name != "time"})
    except (OSError, ValueError, TypeError, AttributeError):
        pass
    return None
