"""The job of a race; see `tools.race.job`."""

from tools.race.job import JOB

__all__ = ["JOB"]
