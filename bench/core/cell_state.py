"""How far a cell is."""

from __future__ import annotations

from enum import StrEnum


class CellState(StrEnum):
    """States of a cell: from its files, in a plan, and as `vit-bench status` shows them.

    Attributes:
        DONE: it has a result; a diverged or out-of-memory one too. All other states are run again.
        PARTIAL: begun, with a checkpoint.
        FAILED: tried, without a result.
        MISSING: nothing is known of it.
        DAMAGED: its record does not verify and will be set aside.
        CHANGED: in a plan: it has results of code, or of images, that have changed since.
        REFUSED: in a plan: its model cannot be trained.
        RUNNING: a process works on it.
        STOPPED: a process holds it and does not go on.
        NEVER_STARTED: it is in the current grid and has no folder.
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
