"""Settings of data that a command makes once and its processes inherit: unreadable images, labels and groups of
images; and sets that are named by the path of their folder."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

from bench.core.errors import UserError, unknown

MAX_UNREADABLE = 0.001  # share of all images; a copy with more is damaged
GROUPS = "VIT_BENCH_GROUPS"  # the environment variable that names a file of groups (`bench.data.groups`) for workers
LABELS = "VIT_BENCH_LABELS"  # It names a table of labels and its columns (`bench.data.labels`).
ROLES = ("file", "label", "labels", "split", "group")  # Each column of such a table has one of these.
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


def asked_columns(columns: Sequence[str]) -> dict[str, list[str]]:
    """Columns of a table of labels, by what they hold: "label=species" -> {"label": ["species"]}.

    Raises:
        UserError: it is of another form, or is about something else.
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
    """Tell this process, and those that it starts, of a table of labels and of the columns that the user has named.

    Raises:
        UserError: see `asked_columns`.
    """
    named = {"path": path and str(Path(path).absolute()), "columns": asked_columns(columns)}
    os.environ[LABELS] = json.dumps(named)


def is_path(name: str) -> bool:
    """Whether a set is named by the path of its folder."""
    before = name.partition(":")[0]
    return before.startswith((".", "~", os.sep)) or "/" in before or os.sep in before


def folder_set(name: str, root: Path | None) -> tuple[Path, str]:
    """(data root, folder:NAME) of a path with what may follow it: photos/flowers:64px@1000.

    Raises:
        UserError: there is no such folder; it is not in the data root.
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
    """ "5%" or "0.05"."""
    try:
        share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise UserError(f"{text!r} is not a share of images.", "Write such as 5% or 0.05.")
    return share
