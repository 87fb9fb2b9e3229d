"""Studies below a results folder, by the name of their folder, and the suite that each answers."""

from __future__ import annotations

from pathlib import Path

from bench.core.errors import UserError, unknown
from bench.store import grid as plan
from bench.store import records
from bench.store.study import Study
from bench.study import registry


def named(results: Path) -> list[str]:
    """Names of the folders that hold a study, sorted.

    Raises:
        PermissionError: a folder there may not be read (`glob` would be silent about it).
    """
    return sorted(p.name for p in results.iterdir() if (p / "cells").is_dir()) if results.is_dir() else []


def absent(name: str, results: Path) -> UserError:
    """The error for a study that is not there: the nearest that is, or how to make it."""
    there, suites = named(results), registry.names("suite")
    if name not in suites:
        return unknown("suite", name, {*suites, *there})
    has = f"It has: {', '.join(there)} (--suite {there[0]}). Else: " if there else ""
    what = f"No study {name!r} in {results}: there are no results of it yet."
    return UserError(
        what, f"{has}vit-bench run --suite {name} makes it." if has else f"Run vit-bench run --suite {name} first."
    )


def suite_of(directory: Path) -> str:
    """The suite whose question a study answers: that of the folder's name, or else the one that its plan.json or its
    records name. A kept study may be called anything (`results/reference/scaling-cpu`).

    Raises:
        UserError: plan.json is damaged, or written by a newer version.
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
