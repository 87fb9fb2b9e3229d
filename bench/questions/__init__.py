"""Questions to the records of a study: one file each, found by name."""

from bench.analysis.question import exported

__all__ = ["exported"]
