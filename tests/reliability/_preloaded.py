"""Work that every process that `_attempt` or `storm_faults` forks would otherwise do anew: imports, and the paper's
claims judged by its numbers."""

import importlib

from bench.analysis import published, questions

for name in (
    "torch._dynamo",
    "scipy.linalg",
    "bench.execute.jobs.train",
    "bench.execute.worker",
    "bench.tasks.fewshot",
    "bench.trackers.tensorboard",
    "bench.report.build",
    "bench.report.inspections",
    "bench.report.page",
    "bench.report.tables",
):
    importlib.import_module(name)
questions.find(published.evidence())
