"""Show what a study would run and cost on this machine, without running it. Equivalent to `bench.run --plan`."""

from __future__ import annotations

import json
import sys

from bench.core.cli import parser
from bench.core.console import make_console
from bench.core.errors import EXIT_OK, command, sigterm_interrupts
from bench.plan import view
from bench.plan.options import StudyOptions, add_options, listing

EXAMPLES = """\
examples:
  python -m bench.plan --suite scaling
  python -m bench.plan --suite scaling --scale paper              cost the grid of the paper
  python -m bench.plan study.toml                                 the study that a file describes
  python -m bench.plan --suite scaling --json | python -m json.tool
"""


@command
def main(argv: list[str] | None = None) -> int:
    p = parser("python -m bench.plan", __doc__ or "", EXAMPLES + listing())
    add_options(p)
    arguments = p.parse_args(argv)
    with sigterm_interrupts():
        plan = view.make_and_show(StudyOptions.parsed(arguments), make_console(stderr=arguments.json), to_run=False)
    if arguments.json:
        print(json.dumps(plan.json()))
    return EXIT_OK


if __name__ == "__main__":
    sys.exit(main())
