"""Show what a study would run and cost on this machine, without running it.

Without --budget, --save and --write-cells, the same as vit-bench run --plan.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from bench.core.cli import parser
from bench.core.console import make_console, write
from bench.core.errors import EXIT_OK, UserError, command, sigterm_interrupts
from bench.core.files import make_directory, write_bytes, write_json
from bench.core.formatting import plural
from bench.plan import recipes, view
from bench.plan.apply_overrides import listing
from bench.plan.plan import Plan, make_plan
from bench.study import suite as suites
from bench.study.cell import to_json
from bench.study.options import StudyOptions, add_options

if TYPE_CHECKING:
    from bench.analysis.evidence import Evidence
    from bench.plan.budget import Chosen

EXAMPLES = """\
examples:
  vit-bench plan --suite scaling
  vit-bench plan --suite scaling --scale paper              cost the grid of the paper
  vit-bench plan --suite scaling --scale paper --hardware 8xH100 --price 2.5/gpuh
  vit-bench plan --suite scaling --budget 5min --save smaller.toml     the best grid for five minutes
  vit-bench plan --suite scaling --recipes                  how each network is trained, and whether it is alike
  vit-bench plan study.toml                                 the study that a file describes
  vit-bench plan --suite scaling --write-cells cells.json   for workers that you start yourself
  vit-bench plan --suite scaling --json | python -m json.tool
"""


@command
def main(argv: list[str] | None = None) -> int:
    p = parser(
        "vit-bench plan",
        __doc__ or "",
        lambda: EXAMPLES + listing(),
        effects=lambda args: {
            "idle": {
                "without --budget": not args.budget and "save",
                "with --budget": args.budget and "recipes",
                "with --recipes": args.recipes and "write_cells",
            }
        },
    )
    add_options(p)
    p.add_argument(
        "--budget",
        metavar="B",
        help="choose the grid that answers the suite's question best within "
        "200gpuh (hours of one device), 12h or 30min of wall time, or money as 500eur",
    )
    p.add_argument(
        "--recipes",
        action="store_true",
        help="show how each run is really trained (warm-up, batch, rate …) by axis, and whether it is alike; measure "
        "nothing",
    )
    p.add_argument(
        "--save", metavar="FILE.toml", type=Path, help="write the chosen grid as a study file of vit-bench run"
    )
    p.add_argument(
        "--write-cells", metavar="FILE.json", type=Path, help="write what is left: --cells of python -m bench.worker"
    )
    arguments = p.parse_args(argv)
    options, console = StudyOptions.parsed(arguments), make_console(stderr=arguments.json)
    options.where.use()
    if options.what.rehearse and arguments.budget:
        raise UserError(
            "--budget is for studies whose cost is known, and a rehearsal's is not.", "Leave one of them out."
        )
    if arguments.recipes:
        axes = recipes.axes(options)
        recipes.show(axes, console)
        if arguments.json:
            print(json.dumps([axis.json() for axis in axes]))
        return EXIT_OK
    with sigterm_interrupts():
        if not arguments.budget:
            plan, chosen = make_plan(options, to_run=False, report=view.ConsoleReporter(console)), None
            view.show(plan, console)
        else:
            plan, chosen = _within(options, arguments.budget, console, save=arguments.save)
    if arguments.write_cells:
        make_directory(arguments.write_cells.absolute().parent)
        write_json(arguments.write_cells, [to_json(planned.cell) for planned in plan.todo])
        files = f"--store {plan.store} --cells {arguments.write_cells} --suite {plan.suite}"
        write(console, f"Written: {plural(len(plan.todo), 'run')}. Do them with: python -m bench.worker {files}")
    if arguments.json:
        print(json.dumps(plan.json() | ({} if chosen is None else {"budget": chosen.json()})))
    return EXIT_OK


def _within(options: StudyOptions, text: str, console: Console, *, save: Path | None) -> tuple[Plan, Chosen]:
    """Choose the part of the suite's grid of runs that gives the narrowest intervals within a budget, print it, and
    plan it.

    Args:
        text: the budget as the user typed it, such as "12h".
        save: path of a study file to write the chosen part to; None writes none.

    Returns:
        The plan of the chosen part, and the choice beside the alternatives that it is compared with.
    """
    from bench.plan import budget  # imports SciPy, which no other plan needs

    wanted = budget.parse(text)
    whole = make_plan(options, to_run=False, report=view.ConsoleReporter(console), as_new=True)
    chosen = budget.chosen(budget.question(whole, _evidence(options)), budget.within(whole, wanted), budget=wanted)
    for line in budget.sentences(chosen, workers=whole.cost.workers):
        write(console, line)
    options = options.changed(grid=chosen.grid, seeds=chosen.seeds, calibrate=False)
    plan = make_plan(options, to_run=False, report=view.ConsoleReporter(console))
    view.show(plan, console)
    if save is not None:
        write_bytes(save, f"# {text} of budget: vit-bench run {save}\n{plan.study.asked}".encode())
        named = "".join(f" --plugins {folder}" for folder in options.where.plugins)
        write(console, f"Written to {save}: vit-bench run {save}{named}")
    return plan, chosen


def _evidence(options: StudyOptions) -> Evidence | None:
    """Return the results in the suite's folder as tables of means with intervals; None if there are no results."""
    from bench.analysis import lr_sweep, study_data  # import pandas, which no other plan needs

    suite = suites.load(options.what.suite)
    folder = options.where.results / suite.name
    if not (folder / "cells").is_dir():
        return None
    return lr_sweep.of_chosen(study_data.load(folder, suite=suite.name), headline=suite.headline, far=suite.far)


if __name__ == "__main__":
    sys.exit(main())
