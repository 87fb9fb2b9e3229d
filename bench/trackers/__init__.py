"""Experiment trackers: readers of what cells have stored, one file each, which exports TRACKER."""
