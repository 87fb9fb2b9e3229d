"""Evaluations, one file each. A task is a module with REVISION and `evaluate(context, data, **options)`."""
