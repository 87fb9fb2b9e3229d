"""Show how far a study is, from its files alone: done, partly done, failed, running now."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from bench.core.cli import parser
from bench.core.errors import EXIT_OK, UserError, command
from bench.store import grid as plan_file
from bench.store import index as studies
from bench.store.lease import holder
from bench.store.study import CellDirectory, Study, attempt_status, state_of

EXAMPLES = """\
examples:
  python -m bench.status                       every study under results/
  python -m bench.status --suite scaling       one study, cell by cell
  python -m bench.status --suite scaling --json
"""
NEVER = {"state": "never started", "fraction": 0.0, "note": None, "attempts": 0, "last": None}
"""A cell of the grid asked for last (plan.json) that has no folder yet."""


def describe(directory: CellDirectory) -> dict[str, Any]:
    """How far a cell is, and who is at it."""
    state, fraction, note = state_of(directory)
    held = None if state == "done" else holder(directory.lease)
    attempts = directory.attempts()
    last = attempt_status(attempts[-1]) if attempts else {}
    return {
        "name": directory.path.name,
        "state": state if held is None else "stopped" if held.stopped else "running",
        "fraction": fraction,
        "note": note if held is None or not held.stopped else f"held by {held}",
        "attempts": len(attempts),
        "last": last.get("ended") or last.get("started"),
    }


@command
def main(argv: list[str] | None = None) -> int:
    p = parser("python -m bench.status", __doc__ or "", EXAMPLES)
    p.add_argument("--suite", help="one study; default: all there are")
    p.add_argument("--results", type=Path, default=Path("results"), help="where results are (default: results)")
    p.add_argument("--json", action="store_true", help="machine-readable output")
    arguments = p.parse_args(argv)
    there = studies.named(arguments.results)
    if arguments.suite:
        if arguments.suite not in there:
            raise studies.absent(arguments.suite, arguments.results)
        there = [arguments.suite]
    if not there:
        raise UserError(f"No study in {arguments.results}.", "Start one with `python -m bench.run --suite smoke`.")
    found = {}
    for study in (Study(arguments.results / name) for name in there):
        study.check()
        cells = [describe(directory) for directory in study.directories()]
        absent = plan_file.never_started(plan_file.read(study.path), [cell["name"] for cell in cells])
        found[study.path.name] = cells + [NEVER | {"name": name} for name in absent]
    if arguments.json:
        print(json.dumps(found))
        return EXIT_OK
    from rich.console import Console
    from rich.table import Table

    from bench.plan.console import show_table

    console = Console()
    for name, cells in found.items():
        counts = Counter(cell["state"] for cell in cells)
        console.print(f"[bold]{name}[/bold]: " + ", ".join(f"{n} {s}" for s, n in sorted(counts.items())))
        if arguments.suite:
            table = Table(box=None, header_style="bold", pad_edge=False)
            for column in ("cell", "state", "done", "attempts", "note"):
                table.add_column(column, overflow="fold")
            for cell in cells:
                row = (
                    cell["name"],
                    cell["state"],
                    f"{cell['fraction']:.0%}",
                    str(cell["attempts"]),
                    cell["note"] or "",
                )
                table.add_row(*row)
            show_table(table, console, spare=("attempts", "done"))
    return EXIT_OK


if __name__ == "__main__":
    sys.exit(main())
