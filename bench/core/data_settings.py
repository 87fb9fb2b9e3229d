"""Data settings that a command writes once into environment variables, which its worker processes inherit: the allowed
fraction of unreadable images, the table of labels, and the file of groups (images of one patient, camera or site). Also
data sets that are named by the path of their folder."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

from bench.core.errors import UserError, unknown

MAX_UNREADABLE = 0.001  # fraction of all images; a copy of a set with more unreadable images counts as damaged
GROUPS = "VIT_BENCH_GROUPS"  # the environment variable that names a file of groups (`bench.data.groups`) for workers
LABELS = "VIT_BENCH_LABELS"  # the environment variable with a table of labels and its columns (`bench.data.labels`)
ROLES = ("file", "label", "labels", "split", "group")  # columns of a table of labels have these roles
ALLOWED = "VIT_BENCH_MAX_UNREADABLE"  # the environment variable that replaces MAX_UNREADABLE, such as "5%"


def max_unreadable() -> float:
    """Return the fraction of a data set's images that may be unreadable; these are left out. A data set with more
    unreadable images is refused.

    Raises:
        UserError: $VIT_BENCH_MAX_UNREADABLE is not a fraction.
    """
    text = os.environ.get(ALLOWED)
    return _share(text) if text else MAX_UNREADABLE


def allow_unreadable(text: str) -> None:
    """Set the fraction that `max_unreadable` returns, in this process and in processes that it starts.

    Raises:
        UserError: `text` is not a fraction such as 5% or 0.05.
    """
    _share(text)
    os.environ[ALLOWED] = text


def asked_columns(columns: Sequence[str]) -> dict[str, list[str]]:
    """Return role -> names of the columns of a table of labels that have this role: ["label=species"] becomes
    {"label": ["species"]}.

    Raises:
        UserError: an entry is not ROLE=COLUMN, or its role is not one of `ROLES`.
    """
    asked: dict[str, list[str]] = {}
    for text in columns:
        role, equals, name = (part.strip() for part in text.partition("="))
        if not equals or not name:
            raise UserError(f"--label-columns {text!r} is not ROLE=COLUMN.", "For example file=image_id,label=species.")
        if role not in ROLES:
            raise unknown("part of a table of labels", role, ROLES)
        asked.setdefault(role, []).append(name)
    return asked


def remember_labels(path: Path | str | None, columns: Sequence[str]) -> None:
    """Set the table of labels for this process and for processes that it starts.

    Args:
        path: file of the table; None if the data set's own table is used.
        columns: the user's choice of columns, each as ROLE=COLUMN.

    Raises:
        UserError: see `asked_columns`.
    """
    named = {"path": path and str(Path(path).absolute()), "columns": asked_columns(columns)}
    os.environ[LABELS] = json.dumps(named)


def is_path(name: str) -> bool:
    """Return whether the name of a data set is the path of a folder, such as "photos/flowers" or "./flowers"."""
    before = name.partition(":")[0]
    return before.startswith((".", "~", os.sep)) or "/" in before or os.sep in before


def folder_set(name: str, root: Path | None) -> tuple[Path, str]:
    """Return (data root, name of the data set) for the path of a folder and the options that may follow it. For
    photos/flowers:64px@1000 these are the absolute path of photos and "folder:flowers:64px@1000".

    Args:
        root: the data root that other data sets of the study require; None if there is none yet.

    Raises:
        UserError: there is no such folder, or it is not directly in `root`.
    """
    path, colon, option = name.partition(":")
    path, at, number = path.partition("@")
    place = Path(path).expanduser().absolute()
    if not place.is_dir():
        raise UserError(
            f"There is no folder {path}.", "Name a folder of images, or a data set (vit-bench data lists them)."
        )
    if root is not None and place.parent != root.absolute():
        raise UserError(
            f"{path} is not in {root}, where the other sets are.", "All folders of a study are in one: --data-root."
        )
    return place.parent, f"folder:{place.name}{colon}{option}{at}{number}"


def _share(text: str) -> float:
    """Parse a fraction of images in [0, 1], written "5%" or "0.05".

    Raises:
        UserError: the text is not such a fraction.
    """
    try:
        share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise UserError(f"{text!r} is not a share of images.", "Write such as 5% or 0.05.")
    return share
