"""Run a study: plan it, estimate its cost, do the missing runs, and report the findings."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from bench.core.cli import parser
from bench.core.console import busy, make_console, write
from bench.core.environment import now
from bench.core.errors import EXIT_FAILED, EXIT_OK, UserError, command, sigterm_interrupts
from bench.core.formatting import by_reason, duration, planned_and_took, plural
from bench.execute.local import Failure
from bench.execute.prepare import begin
from bench.execute.progress import LiveProgress
from bench.execute.tracking import tracked
from bench.plan import view
from bench.plan.apply_overrides import listing
from bench.plan.plan import Plan, make_plan
from bench.report import build as report
from bench.store import planned
from bench.store.planned import PlannedRun
from bench.store.study import CellDirectory, Study, state_of
from bench.study import registry
from bench.study import suite as suites
from bench.study.options import RUN, StudyOptions, add_options
from bench.trackers import tracker as trackers

EXAMPLES = """\
examples:
  vit-bench run --suite scaling                      the main study, at a scale that suits this machine
  vit-bench run --suite scaling --plan               show the plan and its cost only
  vit-bench run --suite smoke                        the whole pipeline, in under a minute
  vit-bench run --suite scaling --models ViT-nano/7,R8x0.25-s2 --seeds 3
  vit-bench run --suite data --data fashion-mnist    accuracy against number of images, on photographs
  vit-bench run --suite scaling --only 'vit-*'       only matching names; do the others later
  vit-bench run --suite scaling --ranks 4            each network trained by four processes together
  vit-bench run --suite scaling --executor slurm --job partition=gpu       jobs of a cluster, see README
  vit-bench run --suite scaling --sweep lr=1e-3,2e-3 --horizons 2epochs
  vit-bench run --suite scaling --track wandb,tensorboard     live curves; see vit-bench report --help
  vit-bench run --suite scaling --scale paper --rehearse     every run of it in seconds: what would break?
  vit-bench run study.toml --seeds 3                 a file of options; flags override it

Run the same command again to continue an interrupted run.
"""


@command
def main(argv: list[str] | None = None) -> int:
    p = parser("vit-bench run", __doc__ or "", lambda: EXAMPLES + listing())
    add_options(p, RUN)
    p.add_argument("--plan", "--dry-run", action="store_true", help="print the plan and stop")
    p.add_argument("--resume", action="store_true", help="changes nothing: an interrupted run always goes on")
    p.add_argument("--wandb-project", metavar="NAME", help="with --track wandb (default: WANDB_PROJECT, or the suite)")
    p.add_argument("--wandb-entity", metavar="NAME", help="with --track wandb (default: WANDB_ENTITY, or your own)")
    p.add_argument("--verbose", action="store_true", help="print every answer with its reasons, and every check")
    arguments = p.parse_args(argv)
    console = make_console(stderr=arguments.json)

    if arguments.study is None and not hasattr(arguments, "suite"):
        raise UserError(
            "Which study?", f"Name one (times: on two cores, where measured), or a study file:\n{table_of_suites()}"
        )
    options = StudyOptions.parsed(arguments)
    trackers.chosen(options.reporting.track)
    options.where.use()
    for name in ("project", "entity"):  # for the process that sends the runs
        if given := getattr(arguments, f"wandb_{name}"):
            os.environ[f"WANDB_{name.upper()}"] = given
    with sigterm_interrupts():
        plan = make_plan(options, to_run=not arguments.plan, report=view.ConsoleReporter(console))
        view.show(plan, console)
    if arguments.plan:
        if arguments.json:
            print(json.dumps(plan.json()))
        return EXIT_OK

    failures = work_off(plan, console, track=options.reporting.track)
    for line in by_reason(failures):  # before the report, which may fail too
        write(console, f"failed: {line}", style="red")
    if options.machine.detach and plan.todo:
        write(console, "vit-bench status --watch follows them; the same command without --detach writes the report.")
        return EXIT_FAILED if failures else EXIT_OK
    with sigterm_interrupts():
        with busy("Asking the questions, drawing the figures …"):
            paths = report.build(plan.store, suite=plan.suite, reference=options.reporting.reference)
        report.say(paths, console, verbose=arguments.verbose)
    if arguments.json:
        print(json.dumps(report.to_json(paths)))
    return EXIT_FAILED if failures or not paths.works else EXIT_OK


def table_of_suites() -> str:
    """A line for each suite: how long it took on two cores where that was measured, and what it asks."""
    made = [suites.load(name) for name in registry.names("suite")]
    return "\n".join(f"  --suite {suite.name:13} {suite.takes or '–':11} {suite.question}" for suite in made)


def work_off(plan: Plan, console: Console, *, track: Sequence[str]) -> list[Failure]:
    """Do what is left of a plan. The store keeps the planned and the real cost. Returns the cells that
    failed.

    Raises:
        As `execute`.
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
    """Planned and actual time of a run: of its cells by their records, resumed ones as a whole; and by the clock."""
    states = {name: state_of(CellDirectory(Study(store).cells_path / name)) for name in cells}
    compared = planned.compare(planned.read(store), {name: state.took for name, state in states.items()})
    parts = [f"The run: {planned_and_took(run.planned, run.took)}"]
    if compared is not None:
        spent = planned_and_took(compared.planned, compared.took, compared.processor)
        parts.append(f"{plural(compared.cells, 'run')}, summed over workers: {spent}")
    return "; ".join(parts) + "."


def execute(plan: Plan, console: Console, *, track: Sequence[str]) -> list[Failure]:
    """Do what is left of a plan, shown on the console and in trackers. Returns the cells that failed.

    Raises:
        Interrupted: see `bench.execute.local.run`.
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


if __name__ == "__main__":
    sys.exit(main())
