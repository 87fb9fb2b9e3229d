"""Read and write built.json: the list of figures and tables that the last report of a study wrote."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from bench.core import files

FOLDERS = ("figures", "tables")
BUILT = "built.json"  # lists the files that the last report wrote into FOLDERS
WRITTEN = (".png", ".svg", ".csv", ".md", ".tex")  # endings of the files that a report writes into FOLDERS


def read(study: Path) -> frozenset[str]:
    """Return the names of the files that the last report wrote into `FOLDERS`, such as "figures/compute.png"; an empty
    set if built.json is missing or damaged. `study`: folder of the study."""
    try:
        names = files.read_sealed(study / BUILT)["files"]
    except (OSError, ValueError, KeyError):
        return frozenset()
    return frozenset(name for name in map(str, names) if _is_written(name))


def write(study: Path, names: Iterable[str]) -> None:
    """Write built.json with these names of files, which `read` then returns. `study`: folder of the study.

    Raises:
        UserError: the file cannot be written.
    """
    files.write_sealed(study / BUILT, {"files": sorted(names)})


def _is_written(name: str) -> bool:
    folder, _, file = name.partition("/")
    return folder in FOLDERS and "/" not in file and file.endswith(WRITTEN)
