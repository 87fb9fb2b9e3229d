"""Data sets by name: one file each, and the rows of the table of public sets."""

from bench.data.data_set import exported
from bench.data.public import ROWS

__all__ = ["ROWS", "exported"]
