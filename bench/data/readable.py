"""Regular files, files in installed packages, and how many of a set's images may be unreadable."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

from bench.core.errors import UserError

MAX_UNREADABLE = 0.001  # of all images; more than this is a damaged copy
GROUPS = "VIT_BENCH_GROUPS"  # the environment variable that names a file of groups (`bench.data.groups`) for workers
ALLOWED = "VIT_BENCH_MAX_UNREADABLE"  # the environment variable that says another share (5%)


def max_unreadable() -> float:
    """The share of unreadable images that is left out; of more, a set is refused.

    Raises:
        UserError: $VIT_BENCH_MAX_UNREADABLE is no share.
    """
    text = os.environ.get(ALLOWED)
    return _share(text) if text else MAX_UNREADABLE


def allow_unreadable(text: str) -> None:
    """Another share, for this process and those that it starts.

    Raises:
        UserError: it is no share.
    """
    _share(text)
    os.environ[ALLOWED] = text


def _share(text: str) -> float:
    """ "5%" or "0.05"."""
    try:
        share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise UserError(f"{text!r} is not a share of images.", "Write such as 5% or 0.05.")
    return share


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
