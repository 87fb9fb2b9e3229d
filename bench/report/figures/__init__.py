"""Figures of reports by name: one file each, which exports FIGURE."""
