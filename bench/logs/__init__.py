"""Readers of logs that experiment trackers have written: they return runs with their settings and series of values."""

POINTS = ("final", "best", "all")  # values of each run to use: its last (the default), its best, or all
