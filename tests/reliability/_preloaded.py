"""What every attempt of `_attempt` would otherwise do anew: imports, and the paper's claims judged by its numbers."""

import importlib

from bench.analysis import published
from bench.analysis.answers.claims import claims

for name in ("torch._dynamo", "bench.execute.jobs.train", "bench.tasks.fewshot", "bench.report.tables",
             "bench.report.findings", "bench.report.page", "bench.report.markdown",
             "tests.reliability._attempt"):  # fmt: skip
    importlib.import_module(name)
claims(published.evidence())
