"""Data sets by name: one file each, which exports DATASET, and the rows of the table of public sets, which is read when
one is asked for."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from bench.data.public_names import PUBLIC_SETS as ROW_NAMES

if TYPE_CHECKING:
    from bench.data.data_set import DataSet

__all__ = ["ROW_NAMES", "row"]


def row(name: str) -> DataSet:
    """The row of this name."""
    data_set: DataSet = importlib.import_module("bench.data.public").ROWS[name]
    return data_set
