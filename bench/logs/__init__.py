"""Readers of what experiment trackers have written, by whichever library: runs with their settings and series."""

POINTS = ("final", "best", "all")  # of logs: the last value of each run, its best, or all values; the first is usual
