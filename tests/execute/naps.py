"""Cells that only sleep, and workers on them: shared by the tests and the measurement of executors."""

import argparse
import contextlib
import io
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console

from bench.core.cli import pair
from bench.core.errors import EXIT_FAILED, EXIT_OK
from bench.execute.local import Failure
from bench.execute.progress import LiveProgress
from bench.study import registry
from bench.study.cell import Cell
from bench.study.options import Machine
from tests.plan.making import calibrated, changed, plan_of

PLUGINS = Path(__file__).parent / "plugins"


def naps(number: int, *, seconds: float = 0.0) -> list[Cell]:
    """Cells of a job that imports no torch."""
    return [
        Cell(model="ViT-pico/14", data="fashion-mnist", seed=seed, job="nap", model_options=(("seconds", seconds),))
        for seed in range(number)
    ]


def held(store: Path) -> Path:
    """Have the naps of a study last until the file that this makes is removed."""
    store.mkdir(parents=True, exist_ok=True)
    (store / "hold").touch()
    return store / "hold"


@contextlib.contextmanager
def known(monkeypatch: Any) -> Iterator[None]:
    """Let this process, and those that it starts, know the job."""
    monkeypatch.setenv(registry.PLUGINS, str(PLUGINS))
    registry.forget()
    try:
        yield
    finally:
        registry.forget()


def run(
    cells: Iterable[Cell],
    store: Path,
    *,
    executor: str,
    workers: int | None = 2,
    job: Sequence[tuple[str, Any]] = (),
    detach: bool = False,
    nodes: int = 1,
    **how: Any,
) -> list[Failure]:
    """As `bench.run --executor`."""
    plan = plan_of(cells, store, workers=workers or 1, ranks=how.pop("ranks", nodes))
    named = tuple(replace(planned, name=registry.directory_name(planned.cell)) for planned in plan.cells)
    asked = Machine(executor=executor, workers=workers, job=tuple(job), detach=detach, device="cpu", nodes=nodes)
    plan = calibrated(changed(plan, cells=named, asked=asked))
    shown = LiveProgress(plan, Console(file=io.StringIO()))
    how = {"on_event": shown.event, "tick": shown.refresh} | how
    run_cells = how.pop("run_cells", None) or registry.load("executor", executor)
    return run_cells(plan, **how)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("store", type=Path)
    parser.add_argument("--executor", default="local", help="local, slurm, ray")
    parser.add_argument("--cells", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=0.0)
    parser.add_argument("--job", action="append", type=pair, default=[])
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--detach", action="store_true")
    options = parser.parse_args()
    os.environ[registry.PLUGINS] = str(PLUGINS)
    listed = naps(options.cells, seconds=options.seconds)
    how = {"executor": options.executor, "workers": options.workers, "detach": options.detach}
    failed = run(listed, options.store, job=options.job, **how)
    return EXIT_FAILED if failed else EXIT_OK


if __name__ == "__main__":
    sys.exit(main())
