"""Prepares a study's folder for a run: names of cells, study file and planned costs."""

from __future__ import annotations

from dataclasses import replace

from bench.core.cell_state import CellState
from bench.plan.changed import accept
from bench.plan.plan import Plan
from bench.store import grid
from bench.store.planned import PlannedCost, add_plans
from bench.store.study import Study


def begin(plan: Plan) -> None:
    """Prepare a study's folder for a run of the plan.

    - The names of all cells of the study's grid are written, so that a report can list missing cells.
    - A study file that repeats the run is written.
    - The planned cost of each cell is stored.
    - Finished cells are tidied, in case a kill interrupted that.

    Raises:
        UserError: the folder cannot be written.
    """
    study = Study(plan.store)
    study.create()
    refused = {cell.name: str(cell.note) for cell in plan.cells if cell.state == CellState.REFUSED}
    if unseen := set(plan.study.grid).difference(cell.name for cell in plan.cells):  # left out by --only
        before = grid.read(plan.store)
        refused |= {name: why for name, why in (before.refused if before else {}).items() if name in unseen}
    wanted = grid.WantedCells(
        suite=plan.suite,
        scale=plan.scale,
        names=plan.study.grid,
        refused=refused,
        downstream=plan.study.downstream,
    )
    grid.write(plan.store, wanted)
    grid.write_study_file(plan.store, plan.study.asked)
    accept(plan.accepted)
    on = PlannedCost(seconds=0.0, device=plan.machine.device, threads=plan.cost.threads, ranks=plan.cost.ranks)
    add_plans(
        plan.store,
        [
            (cell.name, cell.state, replace(on, seconds=cell.whole, error=cell.error))
            for cell in plan.todo
            if cell.whole is not None
        ],
    )
    for planned in plan.cells:
        if planned.state == CellState.DONE:
            study.cell(planned.cell).tidy()
