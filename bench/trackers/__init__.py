"""Experiment trackers: each file sends the stored results of cells (training runs) to one tracker, and exports
TRACKER."""
