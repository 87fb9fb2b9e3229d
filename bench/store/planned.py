"""Plans of cells when they were begun, and runs: planned.json, beside plan.json. Their records say what cells took.

A cell keeps the plan that it was begun under, whatever a later run plans for the rest of it: its record counts all of
it. Where two runs plan in one folder at the same moment, one's plans may be lost: those cells are not compared.
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
    """The plan of one whole cell.

    Attributes:
        seconds: wall-clock, on one worker of an idle machine.
        device: of that worker.
        threads: of each of its processes.
        ranks: its processes.
        error: of the logarithm of `seconds`, one standard deviation, where rates were not measured here.
    """

    seconds: float
    device: str = "cpu"
    threads: int = 1
    ranks: int = 1
    error: float = 0.0


@dataclass(frozen=True, kw_only=True)
class PlannedRun:
    """A run that did all of its cells: every round of a sweep, but not what an earlier run had done.

    Attributes:
        ended: when.
        executor: "local", "slurm" or "ray".
        workers: cells at a time.
        cells: how many it did.
        planned: wall-clock seconds.
        took: wall-clock seconds; on a cluster, with the time in queues.
    """

    ended: str
    executor: str
    workers: int
    cells: int
    planned: float
    took: float


@dataclass(frozen=True, kw_only=True)
class Plans:
    """All of planned.json. `cells`: by the name of their folder."""

    cells: Mapping[str, PlannedCost] = field(default_factory=dict)
    runs: tuple[PlannedRun, ...] = ()


NOTHING = Plans()


@dataclass(frozen=True, kw_only=True)
class PlannedAgainstActual:
    """Finished cells whose plan is known, summed.

    Attributes:
        cells: how many.
        planned: seconds.
        took: seconds.
        processor: seconds of a processor that they used; None unless each was one thread of a CPU. It is less than
            `took` where others used the machine too.
    """

    cells: int
    planned: float
    took: float
    processor: float | None = None


def compare(plans: Plans, took: Mapping[str, tuple[float | None, float | None]]) -> PlannedAgainstActual | None:
    """What was planned and what it took, summed over the cells of which both are known.

    Args:
        took: seconds and processor seconds of complete cells, by name.
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
    """Keep what cells are planned at: (name, state, plan).

    Raises:
        UserError: the file is damaged or from a newer version, or cannot be written.
    """
    before = read(study)
    kept = {name: before.cells[name] for name, state, _ in fresh if name in before.cells and state in BEGUN_STATES}
    cells = {**before.cells, **{name: plan for name, _, plan in fresh}, **kept}
    if cells != before.cells:
        _write(study, Plans(cells=cells, runs=before.runs))


def add_run(study: Path, run: PlannedRun) -> None:
    """Keep a run. Raises as `note`."""
    before = read(study)
    _write(study, Plans(cells=before.cells, runs=(*before.runs, run)))


def _write(study: Path, plans: Plans) -> None:
    cells = {name: asdict(plan) for name, plan in sorted(plans.cells.items())}
    files.write_sealed(study / FILE, {"schema": SCHEMA_VERSION, "cells": cells, "runs": list(map(asdict, plans.runs))})


def read(study: Path) -> Plans:
    """The plans of a study; NOTHING where no run has written them.

    Raises:
        UserError: the file is damaged or from a newer version.
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
