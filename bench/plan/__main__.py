"""Say what a study would do and cost on this machine, and stop. The same as `bench.run --plan`."""

from __future__ import annotations

import sys

from bench.core.cli import parser
from bench.core.errors import command
from bench.plan import overrides
from bench.run import add_study_options, execute

EXAMPLES = """\
examples:
  python -m bench.plan --suite scaling
  python -m bench.plan --suite scaling --scale paper              cost the grid of the paper
  python -m bench.plan --suite scaling --json | python -m json.tool
"""


@command
def main(argv: list[str] | None = None) -> int:
    p = parser("python -m bench.plan", __doc__ or "", EXAMPLES + overrides.listing())
    add_study_options(p)
    arguments = p.parse_args(argv)
    arguments.plan, arguments.profile = True, False
    return execute(arguments)


if __name__ == "__main__":
    sys.exit(main())
