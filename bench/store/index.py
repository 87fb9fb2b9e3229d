"""Find the studies in a folder of results, and the suite to which each study belongs."""

from __future__ import annotations

from pathlib import Path

from bench.core.errors import UserError, unknown
from bench.store import grid as plan
from bench.store import records
from bench.store.study import Study
from bench.study import registry


def named(results: Path) -> list[str]:
    """Return the sorted names of the folders in the folder `results` that hold a study; an empty list if `results` does
    not exist.

    Raises:
        PermissionError: a folder in `results` may not be read (`glob` would skip it silently).
    """
    return sorted(p.name for p in results.iterdir() if (p / "cells").is_dir()) if results.is_dir() else []


def absent(name: str, results: Path) -> UserError:
    """Return the error for a study `name` that is not in `results`. If `name` is a suite, the message gives the command
    that makes the study, else the nearest names."""
    there, suites = named(results), registry.names("suite")
    if name not in suites:
        return unknown("suite", name, {*suites, *there})
    has = f"It has: {', '.join(there)} (--suite {there[0]}). Else: " if there else ""
    what = f"No study {name!r} in {results}: there are no results of it yet."
    return UserError(
        what, f"{has}vit-bench run --suite {name} makes it." if has else f"Run vit-bench run --suite {name} first."
    )


def suite_of(directory: Path) -> str:
    """Return the name of the suite to which the study in the folder `directory` belongs.

    It is the name of the folder if there is a suite of that name. Otherwise plan.json or the first readable record
    states it, because the folder of an exported study may have any name (`results/reference/scaling-cpu`). If neither
    exists, the name of the folder is returned all the same.

    Raises:
        UserError: plan.json is damaged, or a newer version of the project wrote it.
    """
    if directory.name in registry.names("suite"):
        return directory.name
    if (wanted := plan.read(directory)) is not None:
        return wanted.suite
    for cell in Study(directory).directories():
        try:
            record = cell.read_record()
        except records.DamagedRecord:
            continue
        if record is not None:
            return record.suite
    return directory.name
