"""What public checkpoints cost and reach: their tables, the costs of their training, questions, figures, a source of
numbers that reports quote, and a command.

It is plugged in by the entry point that extensions of others use (pyproject.toml), and the rest of the project neither
imports it nor needs it.
"""
