"""The cost of executors beside the work: `python -m tools.measure_executors --cells 500 5000`.

Cells only look at a clock (tests/execute/plugins/jobs/nap.py). For each executor and number of cells, in a process of
its own: wall time per cell, processor time per cell of the driver and of the workers, the workers' time of the last
tenth of their cells against that of the first (above 1: growth), and the driver's peak memory. They are medians of
`--turns`, in which executors follow each other. SLURM is the one that is here: `python -m tests.execute.slurm_cluster
FOLDER` starts one. Ray is started here, and listens on every interface: `unshare --net bash -c "ip link set lo up; …"`
has none but the loopback.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

from bench.store.records import read_record
from bench.study import registry
from tests.conftest import PROJECT
from tests.execute import naps

COLUMNS = ("executor", "cells", "wall ms", "driver ms", "workers ms", "last/first", "driver MiB", "wall s")


def one(executor: str, cells: int) -> dict[str, float | str]:
    """Run so many cells; called in a fresh process."""
    os.environ[registry.PLUGINS] = str(naps.PLUGINS)
    with tempfile.TemporaryDirectory() as folder:
        listed = naps.naps(cells)
        if executor == "ray":
            import ray

            ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, object_store_memory=80 * 2**20)
        began, before = time.monotonic(), time.process_time()
        assert naps.run(listed, Path(folder) / "test", executor=executor) == []
        wall, driver = time.monotonic() - began, time.process_time() - before
        spent = defaultdict(list)  # of each worker, by its attempts' order
        for path in sorted((Path(folder) / "test").glob("cells/*/record.json")):
            record = read_record(path)
            spent[record.model.params].append((record.cost.seconds.train, record.attempts[-1].ended))
        assert sum(map(len, spent.values())) == cells
    workers = sum(max(seconds for seconds, _ in times) for times in spent.values())
    first = last = 0.0
    for times in spent.values():
        own, tenth = sorted(seconds for seconds, _ in times), max(1, len(times) // 10)
        first += own[tenth] - own[0]
        last += own[-1] - own[-1 - tenth]
    return {
        "executor": executor,
        "cells": cells,
        "wall ms": 1000 * wall / cells,
        "driver ms": 1000 * driver / cells,
        "workers ms": 1000 * workers / cells,
        "last/first": last / first,
        "wall s": wall,
        "driver MiB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--executors", nargs="+", default=["local", "slurm", "ray"])
    parser.add_argument("--cells", nargs="+", type=int, default=[500, 5000])
    parser.add_argument("--turns", type=int, default=1)
    parser.add_argument("--one", action="store_true", help="the first of each in this process, as JSON")
    options = parser.parse_args()
    if options.one:
        print(json.dumps(one(options.executors[0], options.cells[0])))
        return 0
    print(" ".join(f"{name:>10}" for name in COLUMNS))
    found = defaultdict(list)
    for executor in options.executors * options.turns:
        for cells in options.cells:
            command = [sys.executable, "-m", "tools.measure_executors", "--one", "--executors", executor]
            done = subprocess.run([*command, "--cells", str(cells)], cwd=PROJECT, stdout=subprocess.PIPE, text=True)
            if done.returncode:
                return done.returncode
            found[executor, cells].append(json.loads(done.stdout.splitlines()[-1]))
    for (executor, _), rows in found.items():
        medians = [f"{statistics.median(row[name] for row in rows):,.4g}" for name in COLUMNS[1:]]
        print(" ".join(f"{value:>10}" for value in (executor, *medians)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
