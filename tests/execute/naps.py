"""Cells that only sleep, and workers on them: shared by the tests and the measurement of executors."""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console

from bench.core import registry
from bench.core.errors import EXIT_FAILED, EXIT_OK
from bench.core.spec import Cell
from bench.execute import local, remote
from bench.execute.executors import ray, slurm
from bench.execute.local import Failure
from bench.execute.progress import LiveProgress
from tests.plan.making import calibrated, plan_of

PLUGINS = Path(__file__).parent / "plugins"


def naps(number: int, *, seconds: float = 0.0) -> list[Cell]:
    """Cells of a job that imports no torch."""
    return [
        Cell(model="ViT-pico/14", data="fashion-mnist", seed=seed, job="nap", model_options=(("seconds", seconds),))
        for seed in range(number)
    ]


@contextlib.contextmanager
def known(monkeypatch: Any) -> Iterator[None]:
    """Let this process, and those that it starts, know the job."""
    monkeypatch.setenv(registry.PLUGINS, str(PLUGINS))
    registry.forget()
    try:
        yield
    finally:
        registry.forget()


def run(cells: Iterable[Cell], store: Path, *, executor: str, workers: int = 2, **how: Any) -> list[Failure]:
    """As `bench.run --executor`."""
    plan = plan_of(cells, store, workers=workers)
    named = tuple(replace(planned, name=registry.directory_name(planned.cell)) for planned in plan.cells)
    plan = calibrated(replace(plan, cells=named))
    shown = LiveProgress(plan, Console(file=io.StringIO()))
    how = {"on_event": shown.event, "tick": shown.refresh} | how
    if executor == "local":
        return local.run(plan, **how)
    make = {"slurm": slurm.Slurm, "ray": ray.Ray}[executor]
    return remote.run(plan, make, device="cpu", workers=workers, **how)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("store", type=Path)
    parser.add_argument("--executor", default="local", help="local, submitit, ray")
    parser.add_argument("--cells", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=0.0)
    options = parser.parse_args()
    os.environ[registry.PLUGINS] = str(PLUGINS)
    submitit = {"executor": "slurm", "options": [("cluster", "local")]}
    how = submitit if options.executor == "submitit" else {"executor": options.executor}
    return EXIT_FAILED if run(naps(options.cells, seconds=options.seconds), options.store, **how) else EXIT_OK


if __name__ == "__main__":
    sys.exit(main())
