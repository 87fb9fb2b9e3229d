"""Export the records of a study's current grid of cells, without checkpoints and logs, to another folder, where they
can be kept, published or committed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from bench.core import files
from bench.core.errors import UserError
from bench.store import grid
from bench.store.built import BUILT, FOLDERS, WRITTEN
from bench.store.study import Study

PAGES = ("findings.json", "fits.json", "report.html", "report.md")


@dataclass(frozen=True, kw_only=True)
class Collected:
    """The cells that an export copied and left out, as the names of their folders.

    Attributes:
        kept: cells whose records were exported.
        left_out: cells that have a record but are not in the current grid.
    """

    kept: tuple[str, ...]
    left_out: tuple[str, ...]


def collect(source: Path, target: Path) -> Collected:
    """Copy the record of every cell in the grid of the study in `source` to the folder `target`, replacing an earlier
    export there.

    The grid is listed in plan.json; without that file, the records of all cells are copied.

    Raises:
        UserError: no cell of the grid has a record, `target` holds something other than an earlier export, or `target`
            cannot be written.
    """
    wanted = grid.read(source)
    names = set(wanted.names) if wanted else None
    there = [directory for directory in Study(source).directories() if directory.record.is_file()]
    chosen = [directory for directory in there if names is None or directory.path.name in names]
    if not chosen:
        raise UserError(f"{source} holds no record of its grid.", "Run the suite first.")
    if source.resolve() == target.resolve():
        raise UserError(f"{target} already contains the results of the study.", "Name another folder with --into.")
    Study(target).check()
    _clear(target)
    for directory in chosen:
        folder = files.make_directory(target / "cells" / directory.path.name)
        files.write_bytes(folder / "record.json", directory.record.read_bytes())
    if wanted:
        grid.write(target, wanted)
    if (source / grid.STUDY_FILE).is_file():
        files.write_bytes(target / grid.STUDY_FILE, (source / grid.STUDY_FILE).read_bytes())
    kept = tuple(directory.path.name for directory in chosen)
    return Collected(kept=kept, left_out=tuple(d.path.name for d in there if d.path.name not in kept))


def _clear(target: Path) -> None:
    """Delete the files of an earlier export in the folder `target`, leave other files there, and create the folder if
    it is missing.

    Raises:
        UserError: `target` holds files but no export, or files that neither an export nor a report writes.
    """
    there = {path.name for path in target.iterdir()} if target.is_dir() else set()
    if there and not any(target.glob("cells/*/record.json")):
        raise UserError(f"{target} is not empty, and holds no exported study.", "Name a new folder with --into.")
    own = {"cells", grid.PLAN_FILE, grid.STUDY_FILE, BUILT, *FOLDERS, *PAGES}
    if strange := sorted(name for name in there - own if not name.endswith(".png")):
        raise UserError(f"{target} holds other things: {', '.join(strange[:5])}.", "Name a new folder with --into.")
    files.make_directory(target)
    try:
        for record in target.glob("cells/*/record.json"):
            record.unlink()
        for path in (path for folder in FOLDERS for path in (target / folder).glob("*")):
            if path.suffix in WRITTEN and path.is_file():
                path.unlink()
        for folder in (*target.glob("cells/*"), *(target / name for name in FOLDERS)):
            if folder.is_dir() and not any(folder.iterdir()):
                folder.rmdir()
        for name in (grid.PLAN_FILE, grid.STUDY_FILE, BUILT):
            (target / name).unlink(missing_ok=True)
    except OSError as error:
        raise files.explain(error, target) from error
