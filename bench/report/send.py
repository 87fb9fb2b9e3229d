"""What `bench.report --to` does: sends a study's runs to a tracker, or writes its tables as CSV files."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from bench.core import files
from bench.core.cell_state import CellState
from bench.store import grid
from bench.store.study import Study, state_of
from bench.trackers import tracker as trackers

if TYPE_CHECKING:
    from bench.study.record import Record

CSV = "csv"
POLL_SECONDS = 15.0


def follow(study: Path, tracker: str, *, folder: Path | None, project: str, parent: int | None) -> int:
    """Send new and changed runs of a study to a tracker, again and again, until every cell is done. Return how many
    times a run was sent.

    Args:
        study: folder of the study.
        tracker: name of the tracker.
        folder: where the tracker keeps its files; None: in the study's folder.
        project: name of the project in the tracker; "": the study's name.
        parent: id of a process with whose end sending stops, too; None: no such process.

    Raises:
        UserError: as in `bench.trackers.tracker.send`.
    """
    changed = 0
    while True:
        whole = is_done(study)  # asked before sending, so that a run which ends meanwhile is sent in the next round
        changed += trackers.send(study, tracker, folder=folder, project=project)
        if whole or (parent and os.getppid() != parent):
            return changed
        time.sleep(POLL_SECONDS)


def is_done(study: Path) -> bool:
    """Return whether every cell of a study's current grid has a result, not counting cells that cannot be run."""
    cells = {directory.path.name: state_of(directory).name for directory in Study(study).directories()}
    wanted = grid.read(study)
    left = set(grid.never_started(wanted, cells)) - set(wanted.refused if wanted else ())
    return set(cells.values()) <= {CellState.DONE} and not left


def write_csv(records: Sequence[Record], target: Path) -> list[Path]:
    """Write every table of `bench.analysis.frames` as a CSV file into `target`; return the files' paths."""
    from bench.analysis import frames
    from bench.analysis.table import frame_csv

    paths = []
    files.make_directory(target)
    for name, make in frames.TABLES.items():
        paths.append(target / f"{name}.csv")
        files.write_bytes(paths[-1], frame_csv(make(records)).encode())
    return paths
