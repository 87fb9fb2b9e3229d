"""Detects results of models whose code has changed since, so that a plan never reuses them silently."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.core import fingerprint, registry
from bench.core.cell_state import CellState
from bench.core.errors import UserError
from bench.core.fingerprint import Fingerprint
from bench.core.formatting import join
from bench.core.spec import Cell
from bench.core.subprocesses import PROJECT
from bench.store.study import CellDirectory, State

WITH_RESULTS = (CellState.DONE, CellState.PARTIAL, CellState.FAILED)


@dataclass(frozen=True)
class Change:
    """A cell whose results, or checkpoints, are of other code than its model has now."""

    model: str
    directory: CellDirectory
    then: Fingerprint
    now: Fingerprint


def changes(cells: Sequence[Cell], directories: Sequence[CellDirectory], states: Sequence[State]) -> tuple[Change, ...]:
    """The cells with results of other code. Results without a fingerprint of their code count as current."""
    changed = []
    for cell, directory, state in zip(cells, directories, states, strict=True):
        if state.name not in WITH_RESULTS or (then := directory.code()) is None:
            continue
        now = fingerprint.of_model(cell.model)
        if now is not None and now.digest != then.digest:
            changed.append(Change(cell.model, directory, then, now))
    return tuple(changed)


def refusal(changed: Sequence[Change]) -> UserError:
    """The error for results of other code: which model, which files, since when, and what can be done."""
    models = list(dict.fromkeys(change.model for change in changed))
    differences = {name: change for change in changed for name in change.then.differing(change.now)}
    what = join([_difference(name, change) for name, change in sorted(differences.items())])
    made = max(_time(change.directory.spec) for change in changed)
    family = join(sorted({_shown(registry.family_of(model).file) for model in models}))
    if all(registry.family_of(model).from_outside for model in models):
        return UserError(
            _changed_since(models, changed, made, what),
            "Use --changed redo to replace the old results, "
            "or --changed keep to accept them because the network is the same.",
        )
    return UserError(
        _changed_since(models, changed, made, what),
        f"If the network now computes something else, increment the revision in {family}: the cells are trained again "
        "and the old results are kept. Or use --changed redo to replace the old results, or --changed keep to accept "
        "them because the network is the same.",
    )


def _changed_since(models: list[str], changed: Sequence[Change], made: str, what: str) -> str:
    return (
        f"The code of {join(models[:3])}{' and others' * (len(models) > 3)} has changed since {len(changed)} of these "
        f"cells were run, the last at {made}: {what}."
    )


def _difference(name: str, change: Change) -> str:
    """One module, file or package that is not as it was."""
    then, now = (code.modules.get(name, "not used") for code in (change.then, change.now))
    if "version " in then + now:
        return f"{name} ({then} then, {now} now)"
    path = Path(name) if "/" in name else fingerprint.path_of(name)
    return name if path is None else f"{_shown(path)} (edited {_time(path)})"


def accept(changed: Sequence[Change]) -> None:
    """Record that these results are valid for the current code. Their records keep the original fingerprint."""
    for change in changed:
        change.directory.accept(change.now)


def _shown(path: Path) -> str:
    return str(path.relative_to(PROJECT)) if path.is_relative_to(PROJECT) else str(path)


def _time(path: Path) -> str:
    """When a file was written last, local time; "?" where it is gone."""
    try:
        return datetime.datetime.fromtimestamp(path.stat().st_mtime).strftime("%Y-%m-%d %H:%M")
    except OSError:
        return "?"
