"""What every attempt of `_attempt` would otherwise do anew: imports, and the paper's claims judged by its numbers."""

import importlib

from bench.analysis import published, questions

for name in ("torch._dynamo", "bench.execute.jobs.train", "bench.tasks.fewshot", "bench.report.tables",
             "bench.report.page", "tests.reliability._attempt"):  # fmt: skip
    importlib.import_module(name)
questions.find(published.evidence())
