"""Runs plans: workers and the pool that starts them. `python -m bench.worker` runs on any machine."""
