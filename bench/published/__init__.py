"""What public checkpoints cost and how accurate they are: tables, the costs of training, questions, figures, a source
of numbers that reports quote, and a command.

This package is plugged in by the entry point that other people's extensions use (pyproject.toml); the rest of the
project neither imports nor needs it.
"""
