"""Run a study: plan it, estimate its cost, do the missing runs, and report the findings."""

from __future__ import annotations

import json
import os
import sys

from bench.core.cli import parser
from bench.core.console import busy, make_console, write
from bench.core.errors import EXIT_FAILED, EXIT_OK, UserError, command, sigterm_interrupts
from bench.core.formatting import by_reason
from bench.execute.work_off import work_off
from bench.plan import view
from bench.plan.apply_overrides import listing
from bench.plan.plan import make_plan
from bench.report import build as report
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
    for name in ("project", "entity"):  # read by the process that sends runs to the tracker
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
    """Return the text that lists the suites, one line each: its name, how long it took on two cores ("–" where that was
    not measured), and the question that it answers."""
    made = [suites.load(name) for name in registry.names("suite")]
    return "\n".join(f"  --suite {suite.name:13} {suite.takes or '–':11} {suite.question}" for suite in made)


if __name__ == "__main__":
    sys.exit(main())
