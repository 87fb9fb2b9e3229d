"""Evaluations, one file each, which exports TASK."""
