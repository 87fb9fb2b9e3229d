"""Data sets by name: one file each, which exports DATASET. Published sets have a row in a table instead
(`bench.data.public`), which is imported only when a row is needed."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from bench.data.public_names import PUBLIC_SETS as ROW_NAMES

if TYPE_CHECKING:
    from bench.data.data_set import DataSet

__all__ = ["ROW_NAMES", "row"]


def row(name: str) -> DataSet:
    """Return the data set of this name from the table of public sets."""
    data_set: DataSet = importlib.import_module("bench.data.public").ROWS[name]
    return data_set
