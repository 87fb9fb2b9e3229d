"""What a suite is asked, and the helpers that suites share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from bench.core.errors import UserError
from bench.core.spec import Cell

SCALES = ("cpu", "gpu", "paper")

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class SuiteOptions:
    """What a user may change about a suite. None leaves the suite's own choice for the scale."""

    scale: str = "cpu"
    models: tuple[str, ...] | None = None
    data: tuple[str, ...] | None = None
    seeds: int | None = None
    data_root: Path | None = None


def merge(cells: Iterable[Cell]) -> list[Cell]:
    """The same cells asked for by several axes become one that carries all their labels."""
    merged: dict[Cell, Cell] = {}
    for cell in cells:
        if cell in merged:
            axes = tuple(dict.fromkeys(merged[cell].axes + cell.axes))
            merged[cell] = replace(merged[cell], axes=axes)
        else:
            merged[cell] = cell
    return list(merged.values())


def pick(kind: str, scale: str, table: Mapping[str, T]) -> T:
    """The entry of a table for a scale.

    Raises:
        UserError: the suite has no such scale.
    """
    if scale not in table:
        raise UserError(f"This suite has no scale {scale!r} for its {kind}.", f"It has: {', '.join(table)}.")
    return table[scale]
