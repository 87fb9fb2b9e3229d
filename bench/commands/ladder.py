"""Train a change beside its baseline on a ladder of budgets: does the gain grow, keep, fade or reverse?

The suite `ladder` as one command: it tunes the rates of every arm alike, trains the rungs with paired seeds, forecasts
the gain further up, and says what certainty would cost.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace

from rich.console import Console

from bench.core import cli
from bench.core.cli import parser
from bench.core.console import make_console, write
from bench.core.errors import EXIT_FAILED, EXIT_OK, UserError, command, sigterm_interrupts
from bench.core.formatting import by_reason
from bench.execute.local import Failure
from bench.execute.work_off import work_off
from bench.plan import budget as budgets
from bench.plan import ladder_design, view
from bench.plan.ladder_design import DETECT
from bench.plan.plan import Plan, make_plan
from bench.report import build as report
from bench.store.study import Study
from bench.study.ladder import BASELINE, place_of
from bench.study.options import RUN, StudyOptions, add_options
from bench.suites.ladder import budgets_at
from bench.train.schedule import WARMUP_PART, warmup_steps

EXAMPLES = """\
examples:
  vit-bench ladder --change optimizer=timm:muon                     a quarter of an hour on two cores
  vit-bench ladder --baseline ViT-femto/7 --change my.py:Net --minutes 20
  vit-bench ladder --change augmentation=mixup --change loss=sigmoid           two arms, which share the level
  vit-bench ladder --baseline ViT-atto/7,ViT-femto/7 --change patch=14 --horizons 8000,32000 --seeds 5
  vit-bench ladder --change model.pooling=token --equal seconds --at ViT-B/16:300epochs
  vit-bench ladder --change optimizer=timm:lion --plan              what it would train first, and how long that takes

Give the same command again to continue; vit-bench report --suite ladder rebuilds the page."""
ROUNDS = 12  # plans in all: at most eleven to tune learning rates, and one for the ladder's runs themselves


@dataclass(frozen=True, kw_only=True)
class Climbed:
    """The outcome of a ladder, which compares a change with a baseline at growing budgets: its last plan, and the runs
    that failed."""

    plan: Plan
    failures: tuple[Failure, ...]


def climb(options: StudyOptions, console: Console, *, say: Callable[[Plan], None] | None = None) -> Climbed:
    """Run a ladder: plan after plan is made and run. Plans tune learning rates, until a plan holds the ladder's own
    runs, or runs fail. `say`: a function that shows each plan to the user; None: plans are shown on the console."""
    _check_change(options)
    failures: list[Failure] = []
    for _ in range(ROUNDS):
        plan = make_plan(options, to_run=True, report=view.ConsoleReporter(console))
        (say or (lambda plan: view.show(plan, console)))(plan)
        failures = work_off(plan, console, track=options.reporting.track)
        if failures or is_last(plan):
            break
    return Climbed(plan=plan, failures=tuple(failures))


def is_last(plan: Plan) -> bool:
    """Return whether a plan holds the ladder's own runs, and not only trials of learning rates."""
    return any(place_of(cell.axes) for cell in plan.study.cells.cells)


def designed(
    options: StudyOptions, console: Console, *, budget: str, detect: float = DETECT, to_run: bool = True
) -> StudyOptions:
    """Return the options with training budgets and a number of seeds that `budget` pays for. If the same was asked
    before, the choice made then is returned again.

    Args:
        budget: the time to spend, such as "20min" or "2gpuh" (hours of a device).
        detect: the gain, in percentage points, that the ladder should be able to show.
        to_run: whether the ladder will be run, so that the choice is kept for later calls.

    Raises:
        UserError: `options` set budgets or seeds too; `budget` cannot be parsed.
    """
    if options.overrides.horizons or options.what.seeds:
        raise UserError(
            "--budget and --minutes choose budgets and seeds.", "Give one of them, or --horizons and --seeds."
        )
    _check_change(options)
    asked = budgets.parse(budget)
    plan = make_plan(options, to_run=False, report=view.ConsoleReporter(console), as_new=True)
    forecast_apart = replace(options, what=replace(options.what, at=None))
    key = {"budget": budget, "detect": detect, "study": forecast_apart.to_toml()}
    made = ladder_design.remembered(plan.store, key)
    if made is None:
        recipe, usual = plan.cells[0].cell.recipe, budgets_at(plan.scale)
        fewest = min(horizon for cell in plan.cells for horizon in cell.cell.horizons if horizon)
        made = ladder_design.design(
            usual,
            _speeds(plan, options),
            limit=budgets.within(plan, asked) / plan.cost.workers,
            workers=plan.cost.workers,
            batch=recipe.batch,
            detect=detect,
            shortest=round(WARMUP_PART * warmup_steps(recipe) * recipe.batch * usual[0] / fewest),
        )
        if to_run:
            Study(plan.store).create()
            ladder_design.remember(plan.store, key, made)
    write(console, ladder_design.words(made, detect=detect))
    return options.changed(horizons=tuple(map(str, made.budgets)), seeds=made.seeds)


def budget_of(budget: str | None, minutes: float | None) -> str | None:
    """Return the budget that was given, as `budget` or in `minutes`, as a text such as "20min"; None if neither was
    given.

    Raises:
        UserError: both were given.
    """
    if budget and minutes is not None:
        raise UserError("--budget and --minutes are both given.", "Give one of them.")
    return budget or (None if minutes is None else f"{minutes:g}min")


def _speeds(plan: Plan, options: StudyOptions) -> dict[str, float]:
    """Return, for the baseline and every change, the planned seconds of its training per image that the baseline sees
    in the same comparison. (At equal compute, a change may see fewer images than the baseline, or more.) The plan's
    first cells (training runs) are the baseline's. A change that the plan does not tell apart from others gets the time
    of the slowest."""
    trials: dict[str, list[tuple[float, int]]] = {}
    for cell in plan.cells:
        if cell.seconds and cell.images:
            arm = f"{cell.cell.model} {cell.cell.recipe.optimizer} {cell.cell.model_options}"
            trials.setdefault(arm, []).append((cell.seconds, cell.images))
    baseline = next(iter(trials.values()), [])
    images = sum(seen for _, seen in baseline) / max(1, len(baseline))
    each = {arm: sum(seconds for seconds, _ in mine) / len(mine) / images for arm, mine in trials.items()}
    for arm in (BASELINE, *options.what.change)[len(each) :]:
        each[arm] = max(each.values(), default=0.0)
    return each


def _check_change(options: StudyOptions) -> None:
    if not options.what.change:
        raise UserError(
            "A ladder follows a change over compute, and none was named.",
            "For example --change optimizer=timm:muon, --change my.py:Net or --change patch=14.",
        )


@command
def main(argv: list[str] | None = None) -> int:
    p = parser("vit-bench ladder", __doc__ or "", EXAMPLES)
    add_options(p, RUN)
    p.add_argument("--baseline", dest="models", type=cli.names_list, default=argparse.SUPPRESS, help="see --models")
    p.add_argument(
        "--budget", metavar="2gpuh", help="choose budgets and seeds for so much: 2gpuh (hours of a device), 20min or 1h"
    )
    p.add_argument("--minutes", type=cli.above_zero, metavar="M", help="the same as --budget Mmin")
    p.add_argument(
        "--detect",
        type=cli.above_zero,
        default=DETECT,
        metavar="POINTS",
        help="the gain that --budget aims at (default: 2)",
    )
    p.add_argument("--plan", "--dry-run", action="store_true", help="print the plan of what is next and stop")
    p.add_argument("--verbose", action="store_true", help="print every answer with its reasons, and every check")
    arguments = p.parse_args(argv)
    console = make_console(stderr=arguments.json)
    options = StudyOptions.parsed(arguments).changed(suite="ladder")
    options.where.use()
    budget = budget_of(arguments.budget, arguments.minutes)
    with sigterm_interrupts():
        if budget:
            options = designed(options, console, budget=budget, detect=arguments.detect, to_run=not arguments.plan)
        if arguments.plan:
            view.show(make_plan(options, to_run=False, report=view.ConsoleReporter(console)), console)
            return EXIT_OK
    done = climb(options, console)
    for line in by_reason(done.failures):
        write(console, f"failed: {line}", style="red")
    with sigterm_interrupts():
        paths = report.build(done.plan.store, suite=done.plan.suite)
        report.say(paths, console, verbose=arguments.verbose)
    if arguments.json:
        print(json.dumps(report.to_json(paths)))
    return EXIT_FAILED if done.failures or not paths.works else EXIT_OK


if __name__ == "__main__":
    sys.exit(main())
