"""How long the report of a very large study takes, and in how much memory: `python -m tools.many_records`.

Writes 10,000 made-up records of 40 kB (or as many as asked for), one of them damaged, and runs the command line on
them as a user would. Memory is that of all its processes together, pages that they share counted once; it is sampled,
and needs Linux. Some minutes, most of them for writing; a busy machine shows in wall seconds, less in those of the
processor.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from bench.core.cli import positive
from bench.study.record import Record
from tests.analysis._records import NUM_TEST, World, write

FAMILIES = (("ViT", "ViT-m{}/7"), ("Hybrid", "R-m{}+ViT-m/2"), ("ResNet", "ResNet-m{}"))
SEEDS = 8
EVERY = 0.2  # seconds between two looks at memory
MIB = 2**20


def study(number: int) -> Iterator[Record]:
    """So many records: families of equal ladders of models, each on every size of the data set, with eight seeds."""
    world = World(seed=5)
    world.seeds, world.draws = tuple(range(SEEDS)), (0, 1, 2, 3, 4)
    world.draw_offsets = {(task, d): world.rng.normal(0, world.draw_sd) for task in NUM_TEST for d in world.draws}
    world.image_offsets = {task: world.rng.normal(0, 0.009) for task in NUM_TEST}
    per_model = len(world.sizes) * SEEDS
    steps = -(-number // (per_model * len(FAMILIES)))
    sizes = np.geomspace(1e4, 1e6, steps)
    world.models = {
        name.format(step): (family, round(size), 30 * round(size))
        for step, size in enumerate(sizes)
        for family, name in FAMILIES
    }
    yield world.pixels()
    cells = ((name, size, seed) for name in world.models for size in world.sizes for seed in world.seeds)
    for (name, size, seed), _ in zip(cells, range(number - 1), strict=False):
        axes = ("data_size", *(["compute"] if size == world.num_images else []))
        yield world.record(name, size, seed, axes)


def proportional_bytes(process: int) -> int:
    """Memory of a process and its descendants; a page that several share counts in parts. 0 for one that has ended."""
    folder = Path("/proc") / str(process)
    try:
        lines = (folder / "smaps_rollup").read_text().splitlines()
        children = [child for path in folder.glob("task/*/children") for child in path.read_text().split()]
    except OSError:
        return 0
    own = sum(1024 * int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return own + sum(proportional_bytes(int(child)) for child in children)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.many_records", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("records", type=positive, nargs="?", default=10_000)
    number = parser.parse_args(argv).records
    with tempfile.TemporaryDirectory() as results:
        directory = Path(results) / "scaling"
        for record in study(number):
            write([record], directory)
        broken = sorted(directory.glob("cells/*/record.json"))[number // 2]
        broken.write_bytes(broken.read_bytes()[:-40])
        started, most = time.perf_counter(), 0
        report = subprocess.Popen(
            [sys.executable, "-m", "bench.report", "--results", results], stdout=subprocess.DEVNULL
        )
        while report.poll() is None:
            most = max(most, proportional_bytes(report.pid))
            time.sleep(EVERY)
        seconds = time.perf_counter() - started
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        page = directory / "report.html"
        if report.returncode:
            return report.returncode
        coverage = (directory / "tables" / "coverage.csv").read_text()
        named = "named" if f"{broken.parent.name},damaged record" in coverage else "NOT NAMED"
        size = page.stat().st_size / MIB
    print(
        f"{number:,} records: {seconds:.1f} s, {used.ru_utime + used.ru_stime:.1f} s of processors, "
        f"{most / MIB:,.0f} MiB at most, page {size:.1f} MiB, damaged record {named}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
