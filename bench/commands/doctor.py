"""Check that this machine trains rightly and at speed: one line per check, a table to keep.

`--quick` leaves out what takes long on a GPU: throughput, lack of memory, feeding, whole suites. On a CPU the checks of
GPUs do not apply. Results are kept in the output file: the same command goes on with the rest, and with
what failed. Where there are several GPUs (or cores) they train together too; two machines are not tried.

Limits called targets were chosen, as shares of what makers state; no GPU has been measured against them. The checks:
bench/execute/machine_checks.py and first_hour.py.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from rich.console import Console

from bench.core import environment, files
from bench.core.cli import parser
from bench.core.console import make_console, write
from bench.core.device import find_device
from bench.core.errors import EXIT_FAILED, EXIT_OK, UserError, command, sigterm_interrupts
from bench.execute.examined import CheckResult
from bench.study.cell import to_json

EXAMPLES = """\
examples:
  vit-bench doctor --quick                  a few minutes
  vit-bench doctor --out doctor-h100.json   everything; the table goes to doctor-h100.md
  vit-bench doctor --only numerics          one check
  vit-bench doctor --quick --anew           check again what was checked before
  vit-bench doctor --quick --json           print what is in the output file instead of a line per check
"""


def markdown(sections: dict[str, list[CheckResult]], facts: dict[str, Any]) -> str:
    """Return the results as Markdown: the machine that was checked, and a table with a row per result.

    Args:
        sections: name of a check -> its results.
        facts: what is known about the machine, by name.
    """
    where = ", ".join(f"{key} {value}" for key, value in facts.items() if value is not None)
    rows = [f"| {line.check} | {line.value} | {line.limit} | {line.outcome} |" for s in sections.values() for line in s]
    return "\n".join([f"# Checked: {where}", "", "| check | value | limit | |", "|---|---|---|---|", *rows, ""])


def show(console: Console, line: CheckResult) -> None:
    """Print one result of a check as a line."""
    limit = f" ({line.limit})" if line.limit else ""
    write(
        console,
        f"{line.outcome:4}  {line.check}: {line.value}{limit}",
        style="red" if line.outcome == "fail" else "",
    )


@command
def main(argv: list[str] | None = None) -> int:
    p = parser("vit-bench doctor", __doc__ or "", EXAMPLES)
    p.add_argument("--device", default="auto", help="cpu, cuda, mps, or auto")
    p.add_argument("--quick", action="store_true", help="leave out what takes long")
    p.add_argument("--only", action="append", metavar="NAME", help="this check alone; may be given several times")
    p.add_argument("--anew", action="store_true", help="check again what the output file has")
    p.add_argument("--out", type=Path, default=Path("doctor.json"), help="JSON; a .md with the table goes beside it")
    options = p.parse_args(argv)
    if options.out.suffix != ".json":
        raise UserError(f"--out {options.out} does not end in .json.", "The table is written beside it, as .md.")
    device, reason = find_device(options.device)
    console = make_console(stderr=options.json)
    write(console, f"Device: {device}{f' ({reason})' if reason else ''}")
    from bench.execute.machine_checks import CHECKS, examine  # imports torch, which --help does not need
    from bench.train import precision

    asked = options.only or [check.name for check in CHECKS if not (check.long and options.quick)]
    if unknown := set(asked) - {check.name for check in CHECKS}:
        raise UserError(f"No check is called {', '.join(unknown)}.", f"There are: {', '.join(c.name for c in CHECKS)}.")
    precision.set_up(threads=environment.cores())
    described = replace(environment.describe(), dirty=None)
    facts = {key: value for key, value in to_json(described).items() if not key.startswith("time")} | {"device": device}
    before: dict[str, Any] = {}
    if options.out.exists() and not options.anew:
        before = json.loads(options.out.read_text())
    kept = before.get("sections", {}) if before.get("environment") == facts else {}
    sections = {name: [CheckResult(**line) for line in lines] for name, lines in kept.items()}
    whole = set(before.get("whole", kept)) & kept.keys()  # the last check may have been killed between two lines
    table, started = options.out.with_suffix(".md"), time.monotonic()

    def keep() -> None:
        everything = {name: [asdict(line) for line in lines] for name, lines in sections.items()}
        files.write_json(options.out, {"environment": facts, "sections": everything, "whole": sorted(whole)})
        files.write_bytes(table, markdown(sections, facts).encode())

    with sigterm_interrupts():
        for check in [check for check in CHECKS if check.name in asked]:
            if check.name in whole and all(line.outcome != "fail" for line in sections[check.name]):
                for line in sections[check.name]:
                    show(console, line)
                continue
            whole.discard(check.name)
            sections[check.name] = []
            for line in examine(check, device):
                sections[check.name].append(line)
                show(console, line)
                keep()
            whole.add(check.name)
            keep()
    keep()
    lines = [line for results in sections.values() for line in results]
    failed = sum(line.outcome == "fail" for line in lines)
    write(console, f"{len(lines)} checks, {failed} failed, in {time.monotonic() - started:.0f} s. Table: {table}")
    if options.json:
        print(options.out.read_text(), end="")
    return EXIT_FAILED if failed else EXIT_OK


if __name__ == "__main__":
    sys.exit(main())
