"""Regular files, and files in installed packages."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from bench.core.errors import UserError


def not_regular(path: Path) -> UserError:
    """The error for something that has an image's or an archive's name and is none."""
    return UserError(f"{printable(path)} is no regular file.", "Take it away; plain files and links to such are read.")


def printable(path: Path | str) -> str:
    """A file name as it may be printed: nothing in it moves a terminal's cursor."""
    text = str(path)
    return text if text.isprintable() else ascii(text)


def in_package(package: str, path: str = "") -> Path | None:
    """A file or folder inside an installed package, found without importing it; None where it is not there."""
    found = importlib.util.find_spec(package)
    if found is None or not found.submodule_search_locations:
        return None
    inside = Path(found.submodule_search_locations[0]) / path
    return inside if inside.exists() else None
