"""Grids and plans as the commands make them, for tests that need no store and no calibration."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from bench.core.spec import Cell
from bench.cost import peaks, precomputed
from bench.plan.estimate import Calibration
from bench.plan.expand import expand
from bench.plan.options import StudyOptions
from bench.plan.plan import Plan, PlannedCell
from bench.plan.sizes import DataSizes
from bench.plan.study_cells import StudyCells
from bench.suites import suite as suites


def grid_of(suite: str, *, scale: str = "cpu", **options) -> StudyCells:
    """The cells of a suite under these fields of `StudyOptions`."""
    asked = replace(StudyOptions.of(), suite=suite, scale=scale, **options)
    return expand(suites.load(suite), asked, DataSizes(root=asked.data_root, published=scale == "paper"))


def cells_of(suite: str, **options) -> list[Cell]:
    """The cells of `grid_of` that a run would do."""
    return list(grid_of(suite, **options).chosen)


def plan_of(cells: Iterable[Cell], store: Path | str = "", *, seconds: float = 1.0, **fields) -> Plan:
    """A plan in which nothing is done."""
    planned = tuple(
        PlannedCell(cell=cell, name=cell.readable_name, state="missing", fraction=0.0, images=64, seconds=seconds)
        for cell in cells
    )
    usual = {"suite": "test", "question": "?", "scale": "cpu", "device": "cpu", "workers": 1, "threads": 1, "ranks": 1}
    return Plan(store=Path(store), cells=planned, **{**usual, **fields})


def costs_of(cells: Iterable[Cell]) -> precomputed.Json:
    """The costs that a run hands to its workers on a CPU (`--precomputed`), with a peak that is assumed: a worker
    without it loads the half of torch that counts."""
    sizes, assumed = DataSizes(), peaks.PeakRate(flops_per_second=1e10, source="assumed")
    trained = [cell for cell in cells if cell.job == "train"]
    peak = precomputed.to_json(measured={"float32": assumed, "bfloat16": assumed}, costs=())
    return precomputed.merge([peak, *(precomputed.counted(cell, classes=sizes[cell.data].classes) for cell in trained)])


def calibrated(plan: Plan) -> Plan:
    """With the costs of its models."""
    return replace(plan, calibration=Calibration(precomputed=costs_of(planned.cell for planned in plan.cells)))
