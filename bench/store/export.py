"""A study's results without what only running needs: the records of its grid, to keep, publish or commit."""

from __future__ import annotations

import shutil
from pathlib import Path

from bench.core import files
from bench.core.errors import UserError
from bench.store import grid as plan
from bench.store.study import Study

OWN = {"cells", "figures", "tables", plan.PLAN_FILE, "findings.json", "fits.json", "report.html", "report.md"}


def collect(source: Path, target: Path) -> int:
    """Make `target` hold the record of every cell in `source`'s grid (of every cell, where no plan.json says which),
    and nothing of an earlier collection. Returns the number of records.

    Raises:
        UserError: no records in the grid; `target` holds something else; it cannot be written.
    """
    wanted = plan.read(source)
    names = set(wanted.names) if wanted else None
    found = [d for d in Study(source).directories() if d.record.is_file() and (names is None or d.path.name in names)]
    if not found:
        raise UserError(f"{source} holds no record of its grid.", "Run the suite first.")
    if source.resolve() == target.resolve():
        raise UserError(f"{target} is where the results are.", "Name another folder with --into.")
    there = list(target.iterdir()) if target.is_dir() else []
    strange = sorted(path.name for path in there if path.name not in OWN and path.suffix != ".png")
    if strange:
        raise UserError(f"{target} holds other things: {', '.join(strange[:5])}.", "Name a new folder with --into.")
    for name in ("cells", "figures", "tables"):
        shutil.rmtree(target / name, ignore_errors=True)
    files.make_directory(target)
    for directory in found:
        files.write_bytes(files.make_directory(target / "cells" / directory.path.name) / "record.json",
                           directory.record.read_bytes())  # fmt: skip
    if wanted:
        plan.write(target, wanted)
    else:
        (target / plan.PLAN_FILE).unlink(missing_ok=True)
    return len(found)
