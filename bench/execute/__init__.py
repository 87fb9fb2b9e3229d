"""Engines that run workers. The same `python -m bench.worker` command serves everywhere."""
