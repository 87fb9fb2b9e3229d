"""The states that a cell can be in."""

from __future__ import annotations

from enum import StrEnum


class CellState(StrEnum):
    """State of a cell (a training run with its evaluations): from its files, in a plan, or in `vit-bench status`.

    Attributes:
        DONE: it has a record, which may say that it diverged or ran out of memory. Cells in all other states are run
            again.
        PARTIAL: it was begun and has a checkpoint.
        FAILED: its last attempt failed.
        MISSING: it has neither a record nor a checkpoint, and its last attempt, if any, did not fail.
        DAMAGED: the checksum of its record does not match; the record will be set aside.
        CHANGED: (plans only) its results are from code or images that have changed since.
        REFUSED: (plans only) its model cannot be trained.
        RUNNING: a process works on it.
        STOPPED: a process has claimed it and makes no progress.
        NEVER_STARTED: it is in the current grid of cells and has no folder.
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
