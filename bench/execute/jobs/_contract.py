"""What a job is given by the worker."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.store.study import CellDirectory
from bench.train.ranks import ONE_RANK, Ranks


@dataclass(frozen=True, kw_only=True)
class JobContext:
    """Where a job runs and how it talks to the rest.

    Attributes:
        directory: the cell's folder; attempt: this attempt's folder inside it (metrics.jsonl, log.txt).
        device: "cpu" or "cuda"; threads: CPU threads that this worker may use.
        progress: called now and then with {"done": images, "total": images, "phase": text, ...} for the display.
        should_stop: True once a signal asked for a stop. The job saves and raises `bench.core.errors.Interrupted`.
        log: writes one line to the attempt's log.
        data_root: where the user keeps data sets, or None.
        profile: write a torch.profiler trace of a few steps into the attempt's folder.
        ranks: the processes that run this cell together. Only the first may write, and progress and log of the others
            go nowhere.

    A job is a file in bench/execute/jobs/ with `run(cell: Cell, context: JobContext) -> dict`: the body of the record,
    namely "status", "reason", "model", "data", "horizons", "cost", "peak_flops_per_second", "peak_source" and what else
    the job found. The worker adds identity, environment, attempts.
    """

    directory: CellDirectory
    attempt: Path
    device: str
    threads: int
    progress: Callable[[dict[str, Any]], None]
    should_stop: Callable[[], bool]
    log: Callable[[str], None]
    data_root: Path | None = None
    profile: bool = False
    ranks: Ranks = ONE_RANK
