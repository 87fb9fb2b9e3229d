"""How far a cell is, from its files alone. Light enough to ask of thousands: neither torch nor NumPy is needed."""

from __future__ import annotations

from bench.store import checkpoints, records
from bench.store.study import CellDirectory, attempt_status

State = tuple[str, float, str | None]


def state_of(directory: CellDirectory) -> State:
    """(state, fraction done, note) of a cell.

    States: "done" (also a diverged or out-of-memory result), "partial", "failed" (tried without a result), "missing",
    "damaged" (its record does not verify and will be set aside). All but "done" are run again.

    Raises:
        UserError: its record is from a newer version of the project.
    """
    try:
        outcome = directory.read_outcome()
    except records.DamagedRecord as error:
        return "damaged", 0.0, error.what
    if outcome is not None:
        note = None if outcome.status == "complete" else f"{outcome.status}: {outcome.reason}"
        return ("failed", 0.0, note) if outcome.status == "failed" else ("done", 1.0, note)
    progress = checkpoints.newest_state(directory.checkpoints)
    last = attempt_status(attempts[-1]) if (attempts := directory.attempts()) else {}
    failed, reason = last.get("outcome") == "failed", last.get("reason")
    if progress is not None:
        fraction = progress["work"] / progress["total_work"] if progress["total_work"] else 0.0
        return ("failed", fraction, reason) if failed else ("partial", fraction, None)
    return ("failed", 0.0, reason) if failed else ("missing", 0.0, None)
