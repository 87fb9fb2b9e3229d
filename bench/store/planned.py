"""Read and write planned.json (beside plan.json): how long each cell and each run was planned to take.

The time that a cell took is in its record. A cell that was begun keeps the plan that it was begun under, whatever a
later run plans for the rest of it, because its record counts all of its time. If two runs plan in one folder at the
same moment, the plans of one may be lost; those cells are then not compared.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from bench import SCHEMA_VERSION
from bench.core import files
from bench.core.cell_state import CellState
from bench.core.errors import UserError
from bench.store.records import build, check_schema

FILE = "planned.json"
BEGUN_STATES = (CellState.PARTIAL, CellState.FAILED)  # states of cells that keep an earlier plan


@dataclass(frozen=True, kw_only=True)
class PlannedCost:
    """The planned duration of one whole cell, and the worker that it is planned for.

    Attributes:
        seconds: wall-clock seconds, on one worker of an idle machine.
        device: the worker's device.
        threads: threads of each of the worker's processes.
        ranks: number of the worker's processes.
        error: one standard deviation of the logarithm of `seconds`, where throughput was not measured on this machine.
    """

    seconds: float
    device: str = "cpu"
    threads: int = 1
    ranks: int = 1
    error: float = 0.0


@dataclass(frozen=True, kw_only=True)
class PlannedRun:
    """Planned and actual time of a run that finished all of its cells.

    Every round of a sweep counts, but not what an earlier run had done.

    Attributes:
        ended: when the run ended, in UTC.
        executor: "local", "slurm" or "ray".
        workers: number of cells worked on at a time.
        cells: number of cells that the run finished.
        planned: planned wall-clock seconds.
        took: actual wall-clock seconds; on a cluster they include the time in queues.
    """

    ended: str
    executor: str
    workers: int
    cells: int
    planned: float
    took: float


@dataclass(frozen=True, kw_only=True)
class Plans:
    """The contents of planned.json: folder name of a cell -> its plan, and the runs in order."""

    cells: Mapping[str, PlannedCost] = field(default_factory=dict)
    runs: tuple[PlannedRun, ...] = ()


NOTHING = Plans()


@dataclass(frozen=True, kw_only=True)
class PlannedAgainstActual:
    """Planned and actual time, summed over the finished cells whose plan is known.

    Attributes:
        cells: number of these cells.
        planned: planned wall-clock seconds.
        took: actual wall-clock seconds.
        processor: processor seconds used; None unless every cell ran on one thread of a CPU. They are fewer than `took`
            where other programs used the machine too.
    """

    cells: int
    planned: float
    took: float
    processor: float | None = None


def compare(plans: Plans, took: Mapping[str, tuple[float | None, float | None]]) -> PlannedAgainstActual | None:
    """Return planned and actual time, summed over the cells for which both are known; None if there are none.

    Args:
        took: folder name -> (wall-clock seconds, processor seconds) of complete cells.
    """
    both = [(plans.cells[name], *spent) for name, spent in took.items() if name in plans.cells]
    known = [(plan, seconds, processor) for plan, seconds, processor in both if seconds is not None]
    if not known:
        return None
    own = [
        processor
        for plan, _, processor in known
        if processor is not None and plan.device == "cpu" and plan.threads == plan.ranks == 1
    ]
    return PlannedAgainstActual(
        cells=len(known),
        planned=math.fsum(plan.seconds for plan, _, _ in known),
        took=math.fsum(seconds for _, seconds, _ in known),
        processor=math.fsum(own) if len(own) == len(known) else None,
    )


def add_plans(study: Path, fresh: Sequence[tuple[str, str, PlannedCost]]) -> None:
    """Write the plans of cells to planned.json. A cell that was begun keeps the plan that it has there.

    Args:
        fresh: (folder name, state, plan) of each cell.

    Raises:
        UserError: planned.json is damaged or from a newer version, or cannot be written.
    """
    before = read(study)
    kept = {name: before.cells[name] for name, state, _ in fresh if name in before.cells and state in BEGUN_STATES}
    cells = {**before.cells, **{name: plan for name, _, plan in fresh}, **kept}
    if cells != before.cells:
        _write(study, Plans(cells=cells, runs=before.runs))


def add_run(study: Path, run: PlannedRun) -> None:
    """Append a run to planned.json. Raises as `add_plans` does."""
    before = read(study)
    _write(study, Plans(cells=before.cells, runs=(*before.runs, run)))


def _write(study: Path, plans: Plans) -> None:
    cells = {name: asdict(plan) for name, plan in sorted(plans.cells.items())}
    files.write_sealed(study / FILE, {"schema": SCHEMA_VERSION, "cells": cells, "runs": list(map(asdict, plans.runs))})


def read(study: Path) -> Plans:
    """Return the plans of a study; `NOTHING` if no run has written any.

    Raises:
        UserError: planned.json is damaged or from a newer version.
    """
    path = study / FILE
    if not path.exists():
        return NOTHING
    try:
        body = files.read_sealed(path)
        check_schema(path, int(body["schema"]))
        cells = {str(name): build(PlannedCost, plan) for name, plan in body["cells"].items()}
        return Plans(cells=cells, runs=tuple(build(PlannedRun, run) for run in body["runs"]))
    except (OSError, LookupError, TypeError, ValueError, AttributeError) as error:
        raise UserError(f"{path} is damaged.", "Delete this one file: what cells were planned at is lost.") from error
