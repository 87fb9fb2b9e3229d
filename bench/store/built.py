"""Which of a study's figures and tables the last report wrote: built.json."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from bench.core import files

FOLDERS = ("figures", "tables")
BUILT = "built.json"  # names of what the last report wrote into FOLDERS
WRITTEN = (".png", ".svg", ".csv", ".md", ".tex")  # by a report, into FOLDERS


def read(study: Path) -> frozenset[str]:
    """Files that the last report wrote into `FOLDERS`, as "figures/compute.png"; none where nothing says so."""
    try:
        names = files.read_sealed(study / BUILT)["files"]
    except (OSError, ValueError, KeyError):
        return frozenset()
    return frozenset(name for name in map(str, names) if _is_written(name))


def write(study: Path, names: Iterable[str]) -> None:
    """Keep what `read` returns. Raises UserError: it cannot be written."""
    files.write_sealed(study / BUILT, {"files": sorted(names)})


def _is_written(name: str) -> bool:
    folder, _, file = name.partition("/")
    return folder in FOLDERS and "/" not in file and file.endswith(WRITTEN)
