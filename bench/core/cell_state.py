"""The states that a cell (a training run with its evaluations) can be in."""

from __future__ import annotations

from enum import StrEnum


class CellState(StrEnum):
    """The state of a cell (a training run with its evaluations).

    Attributes:
        DONE: the cell has a record, which may say that training diverged or ran out of memory. Cells in the other
            states, except REFUSED, are run (again).
        PARTIAL: the cell was begun and has a checkpoint.
        FAILED: the cell's last attempt failed.
        MISSING: the cell has neither a record nor a checkpoint, and its last attempt, if any, did not fail.
        DAMAGED: the cell's record is unreadable, or its checksum does not match; the record will be set aside.
        CHANGED: (plans only) the cell's results are from code or images that have changed since.
        REFUSED: (plans only) the cell's model cannot be trained.
        RUNNING: (`vit-bench status` only) a process works on the cell.
        STOPPED: (`vit-bench status` only) the process that claimed the cell is stopped, for example by a signal.
        NEVER_STARTED: (status and reports only) the cell is in the current grid of cells and has no folder.
    """

    DONE = "done"
    PARTIAL = "partial"
    FAILED = "failed"
    MISSING = "missing"
    DAMAGED = "damaged"
    CHANGED = "changed"
    REFUSED = "refused"
    RUNNING = "running"
    STOPPED = "stopped"
    NEVER_STARTED = "never started"
