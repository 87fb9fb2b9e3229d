"""Evaluations of trained models, one file each; each file exports a `Task` as `TASK`."""
