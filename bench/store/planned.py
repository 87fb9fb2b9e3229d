"""Read and write planned.json (beside plan.json): how long each cell and each run (call of `vit-bench run`) was planned
to take.

The time that a cell took is in its record. A cell that was begun keeps the plan from before it was begun, whatever a
later run plans for the rest of the cell, because the record counts all of its time. If two runs plan in one folder at
the same moment, the plans of one run may be lost; for its cells, planned and actual time are then not compared.
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
    """The planned duration of one whole cell, and the worker (group of processes) that the duration is planned for.

    Attributes:
        seconds: wall-clock seconds, on one worker of an idle machine.
        device: the worker's device.
        threads: threads of each of the worker's processes.
        ranks: number of the worker's processes.
        error: standard deviation of the natural logarithm of `seconds`, if the throughput was not measured on this
            machine but estimated; else 0.
    """

    seconds: float
    device: str = "cpu"
    threads: int = 1
    ranks: int = 1
    error: float = 0.0


@dataclass(frozen=True, kw_only=True)
class PlannedRun:
    """Planned and actual time of a run (call of `vit-bench run`) that finished all of its cells.

    All rounds of a sweep count. Work that an earlier run had done already does not.

    Attributes:
        ended: when the run ended, in UTC.
        executor: "local", "slurm" or "ray".
        workers: number of cells that were worked on at the same time.
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
    """The contents of planned.json.

    Attributes:
        cells: folder name of a cell -> its planned cost.
        runs: planned and actual time of each run, oldest first.
    """

    cells: Mapping[str, PlannedCost] = field(default_factory=dict)
    runs: tuple[PlannedRun, ...] = ()


NOTHING = Plans()


@dataclass(frozen=True, kw_only=True)
class PlannedAgainstActual:
    """Planned and actual time, summed over the finished cells whose planned time is known.

    Attributes:
        cells: number of these cells.
        planned: planned wall-clock seconds.
        took: actual wall-clock seconds.
        processor: processor seconds that the cells used; None unless all of them ran on one thread of a CPU. It is less
            than `took` if other programs used the machine too.
    """

    cells: int
    planned: float
    took: float
    processor: float | None = None


def compare(plans: Plans, took: Mapping[str, tuple[float | None, float | None]]) -> PlannedAgainstActual | None:
    """Return planned and actual time, summed over the cells for which both are known; None if there are no such cells.

    Args:
        took: folder name of each complete cell -> (wall-clock seconds, processor seconds); None if not known.
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
    """Write the planned costs of cells to planned.json of the study in the folder `study`. A cell that was begun keeps
    the planned cost that it has in that file.

    Args:
        fresh: (folder name, state as in `CellState`, planned cost) of each cell.

    Raises:
        UserError: planned.json is damaged, is from a newer version of the project, or cannot be written.
    """
    before = read(study)
    kept = {name: before.cells[name] for name, state, _ in fresh if name in before.cells and state in BEGUN_STATES}
    cells = {**before.cells, **{name: plan for name, _, plan in fresh}, **kept}
    if cells != before.cells:
        _write(study, Plans(cells=cells, runs=before.runs))


def add_run(study: Path, run: PlannedRun) -> None:
    """Append a run to planned.json of the study in the folder `study`.

    Raises:
        UserError: as for `add_plans`.
    """
    before = read(study)
    _write(study, Plans(cells=before.cells, runs=(*before.runs, run)))


def _write(study: Path, plans: Plans) -> None:
    cells = {name: asdict(plan) for name, plan in sorted(plans.cells.items())}
    files.write_sealed(study / FILE, {"schema": SCHEMA_VERSION, "cells": cells, "runs": list(map(asdict, plans.runs))})


def read(study: Path) -> Plans:
    """Return the contents of planned.json of the study in the folder `study`; `NOTHING` if there is no such file.

    Raises:
        UserError: planned.json is damaged, or from a newer version of the project.
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
