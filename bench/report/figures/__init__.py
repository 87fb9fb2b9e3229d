"""Figures of reports by name: one file each, which exports FIGURE."""

from bench.report.figures._contract import exported

__all__ = ["exported"]
