"""One attempt at a study in a process of its own: cells, then the report. Imported once and forked, to be quick."""

import errno
import json
import multiprocessing
import os
import sys
from pathlib import Path
from typing import Any
from unittest import mock

from bench.cost import peaks
from bench.execute import worker
from bench.report import build as report
from bench.store import faults
from bench.study.cell import Cell, to_json

SUITE = "presets"  # a suite without figures: what is killed is the writing of files, not the drawing


def _run(store: str, suite: str, fault: str, locks: bool) -> None:
    if fault:
        os.environ[faults.VARIABLE] = fault
    if not locks:
        mock.patch("fcntl.flock", side_effect=OSError(errno.ENOLCK, "no locks here")).start()
    assumed = peaks.PeakRate(flops_per_second=1e10, source="assumed")
    peaks.peak = lambda *_, **__: assumed  # half a second of products at every start, of no interest here
    with open(os.devnull, "w") as nowhere:
        sys.stdout = nowhere
        folder = Path(store).parent
        named = ["--store", store, "--cells", str(folder / "cells.json"), "--data-root", str(folder), "--suite", suite]
        code = worker.main(named)
        if code == 0 and suite == SUITE:
            report.build(Path(store), suite=SUITE)
    sys.exit(code)


def begin(store: Path, cells: list[Cell], fault: str = "", *, suite: str = SUITE, locks: bool = True) -> Any:
    """Start a new process at it, which `fault` kills or stops. Another suite than SUITE ends without a report. `locks`:
    whether files can be locked, as on some network file systems they cannot."""
    (store.parent / "cells.json").write_text(json.dumps([to_json(cell) for cell in cells]))
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.reliability._preloaded", __name__])
    process = context.Process(target=_run, args=(str(store), suite, fault, locks))
    with mock.patch.dict(os.environ, OMP_NUM_THREADS="1"):  # the first call starts the server with it
        process.start()
    return process


def ended(process: Any) -> int:
    """Exit code of a process, negative for a signal."""
    process.join(timeout=600)
    return process.exitcode


def attempt(store: Path, cells: list[Cell], fault: str = "", *, suite: str = SUITE) -> int:
    """`begin` and wait; returns the exit code."""
    return ended(begin(store, cells, fault, suite=suite))
