"""Helpers for file names and for files in installed packages."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from bench.core.errors import UserError


def not_regular(path: Path) -> UserError:
    """Return the error for something that is named like an image or an archive, but is not a regular file."""
    return UserError(f"{printable(path)} is no regular file.", "Take it away; plain files and links to such are read.")


def printable(path: Path | str) -> str:
    """Return a file name with unprintable characters escaped, so that it cannot control a terminal."""
    text = str(path)
    return text if text.isprintable() else ascii(text)


def in_package(package: str, path: str = "") -> Path | None:
    """Return the path of a file or folder inside an installed package, without importing the package; None if it does
    not exist."""
    found = importlib.util.find_spec(package)
    if found is None or not found.submodule_search_locations:
        return None
    inside = Path(found.submodule_search_locations[0]) / path
    return inside if inside.exists() else None
