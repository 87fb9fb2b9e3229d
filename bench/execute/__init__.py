"""Runs plans: workers, which run cells (training runs) on any machine with `python -m bench.worker`; and the executors
that start them."""
