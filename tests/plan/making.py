"""Grids and plans as the commands make them, for tests that need no store and no calibration."""

from collections.abc import Iterable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from bench.cost import peaks, precomputed
from bench.plan.cost_model import StudyCost
from bench.plan.estimate import Calibration
from bench.plan.expand import expand
from bench.plan.plan import Plan, PlannedCell, PlannedMachine, PlannedStudy
from bench.plan.sizes import DataSizes
from bench.plan.study_cells import StudyCells
from bench.study import suite as suites
from bench.study.cell import Cell
from bench.study.options import StudyOptions
from bench.study.overrides import Overrides


def asked_for(*, overrides: Overrides | None = None, **options: Any) -> StudyOptions:
    """Options whose other values are the defaults."""
    asked = StudyOptions.of().changed(**options)
    return asked if overrides is None else replace(asked, overrides=overrides)


def grid_asked(asked: StudyOptions, sizes: DataSizes | None = None, **more: Any) -> StudyCells:
    """The cells of a study under these options, with their scale."""
    published = asked.what.scale == "paper"
    sizes = sizes or DataSizes(root=asked.where.data_root, published=published)
    only, suite = asked.selection.only, suites.load(asked.what.suite)
    return expand(suite, asked.what, asked.overrides, sizes, only=only, **more)


def grid_of(suite: str, *, scale: str = "cpu", **options: Any) -> StudyCells:
    """The cells of a suite under these options."""
    return grid_asked(asked_for(suite=suite, scale=scale, **options))


def cells_of(suite: str, **options: Any) -> list[Cell]:
    """The cells of `grid_of` that a run would do."""
    return list(grid_of(suite, **options).chosen)


def study_plan(cells: Iterable[PlannedCell], store: Path | str = "test", *, suite: str = "test") -> Plan:
    """A plan of these cells for one worker on a CPU, with results in the folder `store`."""
    options = asked_for(suite=Path(store).name, scale="cpu", results=Path(store).parent)
    design = suites.Suite(name=suite, question="?", cells=lambda options: [])
    return Plan(
        study=PlannedStudy(suite=design, what=options.what, where=options.where),
        cells=tuple(cells),
        cost=StudyCost(workers=1, threads=1, ranks=1),
        machine=PlannedMachine(device="cpu", asked=options.machine, pricing=options.pricing),
        selection=options.selection,
    )


def plan_of(cells: Iterable[Cell], store: Path | str = "test", *, seconds: float = 1.0, **changes: Any) -> Plan:
    """A plan in which nothing is done, of the study in the folder `store`, with `changes` of its parts."""
    planned = tuple(
        PlannedCell(cell=cell, name=cell.readable_name, state="missing", fraction=0.0, images=64, seconds=seconds)
        for cell in cells
    )
    return changed(study_plan(planned, store), **changes)


def changed(plan: Plan, **changes: Any) -> Plan:
    """The plan with other values, each given by the name of its field in whichever part of the plan has it."""
    machine, cost, study = plan.machine, plan.cost, plan.study
    for name, value in changes.items():
        if name in ("machine", "cost", "study"):
            raise TypeError(f"{name}: give the fields of the part")
        if name in {entry.name for entry in fields(Plan)}:
            plan = replace(plan, **{name: value})
        elif name in {entry.name for entry in fields(StudyCost)}:
            cost = replace(cost, **{name: value})
        elif name in {entry.name for entry in fields(PlannedMachine)}:
            machine = replace(machine, **{name: value})
        elif name in {entry.name for entry in fields(StudyCells)}:
            study = replace(study, cells=replace(study.cells, **{name: value}))
        elif name in {entry.name for entry in fields(study.what)}:
            study = replace(study, what=replace(study.what, **{name: value}))
        elif name in {entry.name for entry in fields(machine.asked)}:
            machine = replace(machine, asked=replace(machine.asked, **{name: value}))
        elif name in {entry.name for entry in fields(machine.pricing)}:
            machine = replace(machine, pricing=replace(machine.pricing, **{name: value}))
        elif name in {entry.name for entry in fields(plan.selection)}:
            plan = replace(plan, selection=replace(plan.selection, **{name: value}))
        else:
            raise TypeError(f"no part of a plan has {name}")
    return replace(plan, machine=machine, cost=cost, study=study)


def costs_of(cells: Iterable[Cell]) -> precomputed.Json:
    """The costs that a run hands to its workers on a CPU (`--precomputed`), with a peak that is assumed: a worker
    without it loads the half of torch that counts."""
    sizes, assumed = DataSizes(), peaks.PeakRate(flops_per_second=1e10, source="assumed")
    trained = [cell for cell in cells if cell.job == "train"]
    peak = precomputed.to_json(measured={"float32": assumed, "bfloat16": assumed}, costs=())
    return precomputed.merge([peak, *(precomputed.counted(cell, classes=sizes[cell.data].classes) for cell in trained)])


def calibrated(plan: Plan) -> Plan:
    """With the costs of its models."""
    return changed(plan, calibration=Calibration(precomputed=costs_of(planned.cell for planned in plan.cells)))
