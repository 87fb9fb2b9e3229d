"""What can be seen to fail before anything is measured or begun."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from typing import TYPE_CHECKING

from bench.core import environment, files, registry
from bench.core.errors import UserError
from bench.core.spec import Cell

PER_CORE = 8  # processes

if TYPE_CHECKING:
    from pathlib import Path

    from bench.plan.plan import Plan


def check_folder(results: Path, *, write: bool) -> None:
    """Refuse a results folder that is none, or (`write`) could not be made and written; leaves nothing there.

    Raises:
        UserError: why not.
    """
    there = next(folder for folder in (results, *results.absolute().parents) if folder.exists())
    if not there.is_dir():
        raise UserError(f"{there} is a file, not a folder.", "Choose another folder with --results.")
    if not write:
        return
    try:
        with tempfile.TemporaryDirectory(dir=there):
            pass
    except OSError as error:
        raise files.explain(error, results) from error


def check_processes(workers: int, ranks: int, device: str) -> None:
    """Refuse more processes than a CPU could serve: each holds torch and its own copy of the model.

    Raises:
        UserError: how many there may be.
    """
    most = PER_CORE * environment.cores()
    if device == "cpu" and workers * ranks > most:
        raise UserError(f"{workers * ranks:,} processes on {environment.cores()} core(s) would only wait.",
                        f"Give --workers and --ranks whose product is at most {most}.")  # fmt: skip


def check_data(plan: Plan) -> None:
    """Refuse to begin a study none of whose upstream sets is on this machine; it can be costed.

    Raises:
        UserError: how to get the first of them.
    """
    asked = dict.fromkeys(planned.cell.data for planned in plan.todo if planned.cell.job == "train")
    unseen = [name for name in asked if name in plan.sizes and plan.sizes[name].shape is None]
    absent = [name for name in unseen if not registry.load("data set", name).available(plan.data_root)]
    if asked and len(absent) == len(asked):
        how = registry.load("data set", absent[0]).HOW_TO_GET
        raise UserError(f"{', '.join(absent)} is not on this machine: the study can be costed (--plan), not run.", how)


def only_read(cells: Sequence[Cell]) -> list[Cell]:
    """The cells, without trainings of models that have nothing to train: of these stays the suite's own baseline, the
    untrained model read once.

    Raises:
        UserError: the suite has no such baseline.
    """
    fixed = {cell.model for cell in cells if not getattr(registry.family_of(cell.model), "TRAINS", True)}
    kept = [cell for cell in cells if cell.model not in fixed or (cell.job == "train" and cell.horizons == (0,))]
    if lost := sorted(fixed - {cell.model for cell in kept}):
        raise UserError(f"{lost[0]!r} has nothing to train, and this suite has no baseline that only reads it.",
                        "Leave it out of --models; the suites scaling, data and smoke read it.")  # fmt: skip
    return kept
