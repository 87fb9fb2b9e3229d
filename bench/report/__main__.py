"""Build a study's tables, figures and report from its records. Needs no torch; equal records give identical files."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from bench.core.cli import parser
from bench.core.errors import EXIT_OK, command
from bench.plan.options import results_of
from bench.report.build import PAPER, build, say, to_json
from bench.store import index

EXAMPLES = """\
examples:
  python -m bench.report                              the scaling study's report, from results/scaling
  python -m bench.report --suite data --results out   another suite, another folder
  python -m bench.report study.toml                   the study that this file asks for
  python -m bench.report --reference paper            add the paper's published results to the figures
  python -m bench.report --suite paper                the paper's own tables: its figures, and tests of its claims
  python -m bench.report --suite data --into kept     copy the records of the grid to a new folder and report there
  python -m bench.report --suite scaling --json       paths and findings as JSON
"""


@command
def main(argv: list[str] | None = None) -> int:
    p = parser("python -m bench.report", __doc__ or "", EXAMPLES, plugins=True)
    p.add_argument("study", nargs="?", metavar="STUDY.toml", help="a study file, which names suite and results")
    p.add_argument("--suite", help="which study: its folder's name (default: scaling)")
    p.add_argument("--results", type=Path, help="where results are (default: results)")
    p.add_argument("--reference", choices=[PAPER], help="add the paper's published results to the figures")
    p.add_argument("--into", type=Path, help="copy the records of the study's grid to this folder, and report there")
    p.add_argument("--verbose", action="store_true", help="print every answer with its reasons, and every check")
    p.add_argument("--json", action="store_true", help="machine-readable output on standard output")
    arguments = p.parse_args(argv)
    named, results = results_of(arguments)
    suite = named or "scaling"
    directory = results / suite
    if suite != PAPER:
        if not directory.is_dir():
            raise index.absent(suite, results)
        suite = index.suite_of(directory)
        if arguments.into:
            from bench.store.export import collect

            if left_out := collect(directory, arguments.into).left_out:
                some = ", ".join(left_out[:3]) + (", …" if len(left_out) > 3 else "")
                print(f"{len(left_out)} record(s) outside the current grid were not copied: {some}", file=sys.stderr)
    paths = build(arguments.into or directory, suite=suite, reference=arguments.reference)
    if arguments.json:
        print(json.dumps(to_json(paths)))
    else:
        from rich.console import Console

        say(paths, Console(), verbose=arguments.verbose)
    return EXIT_OK


if __name__ == "__main__":
    sys.exit(main())
