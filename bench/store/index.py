"""Find the studies in a results folder by the names of their folders, and the suite that each belongs to."""

from __future__ import annotations

from pathlib import Path

from bench.core.errors import UserError, unknown
from bench.store import grid as plan
from bench.store import records
from bench.store.study import Study
from bench.study import registry


def named(results: Path) -> list[str]:
    """Return the sorted names of the folders in `results` that hold a study; empty if there is no such folder.

    Raises:
        PermissionError: a folder there may not be read (`glob` would skip it silently).
    """
    return sorted(p.name for p in results.iterdir() if (p / "cells").is_dir()) if results.is_dir() else []


def absent(name: str, results: Path) -> UserError:
    """Return the error for a study that does not exist; it suggests the nearest name, or the command that makes it."""
    there, suites = named(results), registry.names("suite")
    if name not in suites:
        return unknown("suite", name, {*suites, *there})
    has = f"It has: {', '.join(there)} (--suite {there[0]}). Else: " if there else ""
    what = f"No study {name!r} in {results}: there are no results of it yet."
    return UserError(
        what, f"{has}vit-bench run --suite {name} makes it." if has else f"Run vit-bench run --suite {name} first."
    )


def suite_of(directory: Path) -> str:
    """Return the name of the suite that a study belongs to.

    That is the folder's name if a suite is called so, or else the suite that plan.json or the first readable record
    names: the folder of an exported study may have any name (`results/reference/scaling-cpu`).

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
