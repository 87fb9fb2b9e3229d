"""Show what a study would run and cost on this machine, without running it.

Without --budget and --save, the same as bench.run --plan.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from bench.core.cli import parser
from bench.core.console import make_console, write
from bench.core.errors import EXIT_OK, UserError, command, sigterm_interrupts
from bench.core.files import write_bytes
from bench.plan import recipes, view
from bench.plan.options import StudyOptions, add_options, listing
from bench.plan.plan import Plan, make_plan
from bench.suites import suite as suites

if TYPE_CHECKING:
    from bench.analysis.evidence import Evidence
    from bench.plan.budget import Chosen

EXAMPLES = """\
examples:
  python -m bench.plan --suite scaling
  python -m bench.plan --suite scaling --scale paper              cost the grid of the paper
  python -m bench.plan --suite scaling --scale paper --hardware 8xH100 --price 2.5/gpuh
  python -m bench.plan --suite scaling --budget 5min --save smaller.toml     the best grid for five minutes
  python -m bench.plan --suite scaling --recipes                  how each cell is trained, and whether it is alike
  python -m bench.plan study.toml                                 the study that a file describes
  python -m bench.plan --suite scaling --json | python -m json.tool
"""


@command
def main(argv: list[str] | None = None) -> int:
    p = parser("python -m bench.plan", __doc__ or "", EXAMPLES + listing())
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
        help="show how each cell is really trained (warm-up, batch, rate …) by axis, and whether it is alike; measure "
        "nothing",
    )
    p.add_argument("--save", metavar="FILE.toml", type=Path, help="write the chosen grid as a study file of bench.run")
    arguments = p.parse_args(argv)
    if arguments.save and not arguments.budget:
        raise UserError("--save writes the grid that --budget chooses.", "Give --budget too.")
    if arguments.recipes and arguments.budget:
        raise UserError("--recipes plans nothing, and --budget does.", "Give one of them.")
    options, console = StudyOptions.parsed(arguments), make_console(stderr=arguments.json)
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
    if arguments.json:
        print(json.dumps(plan.json() | ({} if chosen is None else {"budget": chosen.json()})))
    return EXIT_OK


def _within(options: StudyOptions, text: str, console: Console, *, save: Path | None) -> tuple[Plan, Chosen]:
    """The plan of the grid that a budget buys, said and written."""
    from bench.plan import budget  # SciPy, which no other plan needs

    wanted = budget.parse(text)
    whole = make_plan(options, to_run=False, report=view.ConsoleReporter(console), as_new=True)
    asked = budget.question(whole, _evidence(options))
    chosen = budget.chosen(asked, budget.within(whole, wanted), budget=wanted)
    for line in budget.sentences(chosen, workers=whole.workers):
        write(console, line)
    options = replace(options, grid=chosen.grid, seeds=chosen.seeds, calibrate=False)
    plan = make_plan(options, to_run=False, report=view.ConsoleReporter(console))
    view.show(plan, console)
    if save is not None:
        write_bytes(save, f"# {text} of budget: python -m bench.run {save}\n{plan.asked}".encode())
        write(console, f"Written to {save}: python -m bench.run {save}")
    return plan, chosen


def _evidence(options: StudyOptions) -> Evidence | None:
    """The suite's results; None without any."""
    from bench.analysis import lr_sweep, study_data  # pandas, which no other plan needs

    suite = suites.load(options.suite)
    folder = options.results / suite.name
    if not (folder / "cells").is_dir():
        return None
    return lr_sweep.of_chosen(study_data.load(folder, suite=suite.name), headline=suite.headline, far=suite.far)


if __name__ == "__main__":
    sys.exit(main())
