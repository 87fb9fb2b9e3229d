"""Detect results that were made with other code of the model, or other images of the data set, than there are now, so
that a plan never reuses them silently."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

from bench.core.by_key import by_key
from bench.core.cell_state import CellState
from bench.core.errors import PROJECT, UserError
from bench.core.formatting import join
from bench.data import identity
from bench.store.study import CellDirectory, State
from bench.study import fingerprint, registry
from bench.study.cell import Cell
from bench.study.fingerprint import Basis, Fingerprint

WITH_RESULTS = (CellState.DONE, CellState.PARTIAL, CellState.FAILED)


@dataclass(frozen=True)
class Change:
    """A cell whose results, or checkpoints, were made with other code than its model has now, or with other images.

    Attributes:
        model: name of the model.
        directory: the cell's folder.
        then: the code and images that the results were made with.
        now: the code and images that there are now.
    """

    model: str
    directory: CellDirectory
    then: Basis
    now: Basis


def changes(
    cells: Sequence[Cell], directories: Sequence[CellDirectory], states: Sequence[State], *, root: Path | None = None
) -> tuple[Change, ...]:
    """Return a `Change` for each cell whose results were made with other code or images than there are now. Results
    that do not state their code or images count as current.

    Args:
        directories, states: folder and state of each cell.
        root: folder with data sets that do not come with the installation.

    Raises:
        UserError: images that were read when the results were made cannot be read now.
    """
    changed = []
    digest = cache(partial(identity.digest, root=root))
    for cell, directory, state in zip(cells, directories, states, strict=True):
        if state.name in WITH_RESULTS:
            then = directory.basis()
            images = {name: known for name in then.images if (known := digest(name)) is not None}
            now = Basis(code=then.code and (fingerprint.of_model(cell.model) or then.code), images=images)
            if not then.agrees(now):
                changed.append(Change(cell.model, directory, then, now))
    return tuple(changed)


def error_for(changed: Sequence[Change]) -> UserError:
    """Return the error for results of other code or images. It says which results they are, what differs, since when,
    and what the user can do."""
    of_code = [change for change in changed if not change.then.agrees(Basis(code=change.now.code))]
    errors = [*([_other_code(of_code)] if of_code else []), *_other_images(changed)]
    what, fix = (" ".join(dict.fromkeys(parts)) for parts in zip(*((e.what, e.fix) for e in errors), strict=True))
    return UserError(what, fix)


def _other_code(changed: Sequence[Change]) -> UserError:
    models = list(dict.fromkeys(change.model for change in changed))
    pairs = [(change.then.code, change.now.code) for change in changed if change.then.code and change.now.code]
    differences = {name: (then, now) for then, now in pairs for name in then.differing(now)}
    what = join([_difference(name, *codes) for name, codes in sorted(differences.items())])
    family = join(sorted({_shown(registry.family_of(model).file) for model in models}))
    about = f"The code of {join(models[:3])}{' and others' * (len(models) > 3)}"
    if all(registry.family_of(model).from_outside for model in models):
        return UserError(
            _changed_since(about, changed, what),
            "Use --changed redo to replace the old results, "
            "or --changed keep to accept them because the network is the same.",
        )
    return UserError(
        _changed_since(about, changed, what),
        f"If the network now computes something else, increment the revision in {family}: they are trained again "
        "and the old results are kept. Or use --changed redo to replace the old results, or --changed keep to accept "
        "them because the network is the same.",
    )


def _other_images(changed: Sequence[Change]) -> Iterator[UserError]:
    """Yield an error for each data set whose images differ from those that results were made with."""
    differing = by_key(
        ((name, then, now), change)
        for change in changed
        for name, then in change.then.images.items()
        if (now := change.now.images.get(name, then)) != then
    )
    for (name, then, now), cells in differing.items():
        yield UserError(
            _changed_since(name, cells, identity.difference(then, now)),
            "Use --changed redo to replace the old results, or --changed keep to accept them as they are. To have "
            "both, put the images back and give the new ones another name.",
        )


def _changed_since(about: str, changed: Sequence[Change], what: str) -> str:
    made = max(_time(change.directory.spec) for change in changed)
    return f"{about} has changed since {len(changed)} of these runs were done, the last at {made}: {what}."


def _difference(name: str, *codes: Fingerprint) -> str:
    """Return the name of one module, file or package that has changed, with its versions or the time of its last
    change. `codes`: fingerprints of the code then and now."""
    then, now = (code.modules.get(name, "not used") for code in codes)
    if "version " in then + now:
        return f"{name} ({then} then, {now} now)"
    path = Path(name) if "/" in name else fingerprint.path_of(name)
    return name if path is None else f"{_shown(path)} (edited {_time(path)})"


def accept(changed: Sequence[Change]) -> None:
    """Mark the results in `changed` as valid for the current code and images. Their records still name the code and
    images that they were made with."""
    for change in changed:
        change.directory.accept(change.now)


def _shown(path: Path) -> str:
    return str(path.relative_to(PROJECT)) if path.is_relative_to(PROJECT) else str(path)


def _time(path: Path) -> str:
    """Return when a file was last written, in local time, such as "2026-11-29 03:20"; "?" if there is no such file."""
    try:
        return datetime.datetime.fromtimestamp(path.stat().st_mtime).strftime("%Y-%m-%d %H:%M")
    except OSError:
        return "?"
