"""Prepares a study's folder for a run."""

from __future__ import annotations

from dataclasses import replace

from bench.plan.changed import accept
from bench.plan.plan import Plan
from bench.store import grid
from bench.store.planned import PlannedCost, note
from bench.store.study import Study


def begin(plan: Plan) -> None:
    """Prepare the store for a run: write the names of the whole grid, so that a report can list missing cells, and the
    study file that asks for it, and what its cells are planned at; complete the cleanup of finished cells after a kill.

    Raises:
        UserError: the store cannot be written.
    """
    study = Study(plan.store)
    study.create()
    refused = {cell.name: str(cell.note) for cell in plan.cells if cell.state == "refused"}
    if unseen := set(plan.grid).difference(cell.name for cell in plan.cells):  # left out by --only
        before = grid.read(plan.store)
        refused |= {name: why for name, why in (before.refused if before else {}).items() if name in unseen}
    wanted = grid.WantedCells(
        suite=plan.suite, scale=plan.scale, names=plan.grid, refused=refused, downstream=plan.downstream
    )
    grid.write(plan.store, wanted)
    grid.write_study_file(plan.store, plan.asked)
    accept(plan.accepted)
    on = PlannedCost(seconds=0.0, device=plan.device, threads=plan.threads, ranks=plan.ranks)
    note(
        plan.store,
        [
            (cell.name, cell.state, replace(on, seconds=cell.whole, error=cell.error))
            for cell in plan.todo
            if cell.whole is not None
        ],
    )
    for planned in plan.cells:
        if planned.state == "done":
            study.cell(planned.cell).tidy()
