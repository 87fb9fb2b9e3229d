"""The command that asks the published tables."""
