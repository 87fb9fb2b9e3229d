"""Carries out a plan, shows it on the console and in trackers, and stores the planned time beside the time it took."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from bench.core.console import write
from bench.core.environment import now
from bench.core.formatting import duration, planned_and_took, plural
from bench.execute.local import Failure
from bench.execute.prepare import begin
from bench.execute.progress import LiveProgress
from bench.execute.tracking import tracked
from bench.plan.plan import Plan
from bench.store import planned
from bench.store.planned import PlannedRun
from bench.store.study import CellDirectory, Study, state_of
from bench.study import registry
from bench.trackers import tracker as trackers


def work_off(plan: Plan, console: Console, *, track: Sequence[str]) -> list[Failure]:
    """Run the cells of a plan that are left to do, and store planned and actual time. Return the cells that failed.
    `track`: names of trackers.

    Raises:
        Interrupted, UserError: as in `execute`.
    """
    began = time.monotonic()
    failures = execute(plan, console, track=track)
    done = [cell.name for cell in plan.todo]
    if done and not failures and not plan.machine.asked.detach:
        run = PlannedRun(
            ended=now(),
            executor=plan.machine.asked.executor,
            workers=plan.cost.workers,
            cells=len(done),
            planned=plan.seconds,
            took=time.monotonic() - began,
        )
        if plan.rehearsal:
            write(console, f"The run took {duration(run.took)}.")
            return failures
        planned.add_run(plan.store, run)
        write(console, planned_against_actual(plan.store, run, done))
    return failures


def planned_against_actual(store: Path, run: PlannedRun, cells: Sequence[str]) -> str:
    """Return in words the planned and actual time of a run: by the clock, and as the sum over its cells of the times in
    their records. A cell that was resumed counts with all of its time. `cells`: names of the cells."""
    states = {name: state_of(CellDirectory(Study(store).cells_path / name)) for name in cells}
    compared = planned.compare(planned.read(store), {name: state.took for name, state in states.items()})
    parts = [f"The run: {planned_and_took(run.planned, run.took)}"]
    if compared is not None:
        spent = planned_and_took(compared.planned, compared.took, compared.processor)
        parts.append(f"{plural(compared.cells, 'run')}, summed over workers: {spent}")
    return "; ".join(parts) + "."


def execute(plan: Plan, console: Console, *, track: Sequence[str]) -> list[Failure]:
    """Run the cells of a plan that are left to do, and show progress on the console and in trackers. Return the cells
    that failed. `track`: names of trackers.

    Raises:
        Interrupted: a signal asked for a stop.
        UserError: the store cannot be written; a tracker's library is missing; ….
    """
    names = trackers.chosen(track)
    live = trackers.AUTO not in track and not plan.study.suite.exclusive
    begin(plan)
    with (
        tracked(plan.store, names, live=live, say=lambda text: write(console, text, style="yellow")),
        LiveProgress(plan, console) as progress,
    ):
        run_cells = registry.load("executor", plan.machine.asked.executor)
        failures: list[Failure] = run_cells(plan, on_event=progress.event, tick=progress.refresh)
        return failures
