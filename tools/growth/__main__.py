"""How processor time and memory grow with the size of the work: `python -m tools.growth [--only report,fit]`.

Each kind of work of `tools/growth/works.py` is done at three sizes, by processes of its own, as a user would. Seconds
are of the processor, user and system, of a process and those that it waited for: a busy machine does not change them
by much. Memory is the resident peak of the largest of these processes. An exponent is the slope of the logarithm
between a size and the one before: 1 grows in proportion; near 0 means that starting takes most of it.

    python -m tools.growth                     all; an hour of one core, and 15 GB of disk for a million images
    python -m tools.growth --small             sizes of a nightly test: minutes
    python -m tools.growth --only index --folder FOLDER         what is made lies there, and is used again

A line that misses its goal ends with "MISSES"; so does the command, by exit code 1.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tools.growth.works import WORKS, Work

PROJECT = Path(__file__).resolve().parent.parent.parent
MB = 1e6


@dataclass(frozen=True)
class Measured:
    """What one size of a work took.

    Attributes:
        seconds: of the processor.
        wall: seconds that passed.
        peak: bytes of the largest process.
        said: what the work measured itself, by name.
    """

    seconds: float
    wall: float
    peak: int
    said: dict[str, float]


def measured(command: list[str], folder: Path, settings: dict[str, str]) -> Measured:
    """Run a command to its end.

    Raises:
        RuntimeError: it failed.
    """
    # This process imports nothing large: the peak of a child begins with that of the process that starts it.
    environment = os.environ | {"PYTHONPATH": str(PROJECT), "OMP_NUM_THREADS": "1"} | settings
    with open(folder / "output.txt", "w+b") as output:
        started = time.perf_counter()
        child = subprocess.Popen(command, cwd=folder, env=environment, stdout=output, stderr=output)
        _, status, used = os.wait4(child.pid, 0)
        wall = time.perf_counter() - started
        child.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        text = output.read().decode(errors="replace")
    if child.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with {child.returncode}: {text[-2_000:]}")
    last = text.strip().rpartition("\n")[2]
    said = json.loads(last) if last.startswith('{"growth"') else {}
    return Measured(used.ru_utime + used.ru_stime, wall, used.ru_maxrss * 1024, said.get("growth", {}))


def measure(work: Work, size: int, root: Path) -> Measured:
    """One work at one size, in a folder of its own, with an empty cache."""
    folder = root / work.makes / str(size)
    if not (folder / "made").exists():
        folder.mkdir(parents=True, exist_ok=True)
        measured([sys.executable, "-m", "tools.growth.works", "make", work.makes, str(size)], folder, {})
        (folder / "made").touch()
    with tempfile.TemporaryDirectory(dir=root) as cache:
        command = [part.format(size=size, python=sys.executable, work=cache) for part in work.command]
        return measured(command, folder, {"VIT_BENCH_CACHE": cache})


def line(work: Work, size: int, now: Measured, before: tuple[int, Measured] | None) -> str:
    """What is printed of one size."""
    said = "".join(f"; {name} {value:,.4g}" for name, value in now.said.items())
    exponents = ""
    if before is not None:
        apart = math.log(size / before[0])
        time_exponent = math.log(now.seconds / before[1].seconds) / apart
        memory_exponent = math.log(now.peak / before[1].peak) / apart
        each = (now.peak - before[1].peak) / (size - before[0])
        exponents = f", exponents {time_exponent:.2f} and {memory_exponent:.2f}, {each:,.0f} bytes for each one more"
    goal = work.goals.get(size)
    verdict = "" if goal is None else "; within its goal" if goal.met(now.seconds, now.peak, now.said) else "; MISSES"
    verdict += "" if goal is None else f" ({goal})"
    return (
        f"{work.name}, {size:,} {work.unit}: {now.seconds:.1f} s of the processor ({now.wall:.1f} s), "
        f"{now.peak / MB:,.0f} MB{exponents}{said}{verdict}"
    )


@contextlib.contextmanager
def folder_of(given: Path | None) -> Iterator[Path]:
    """The folder to work in: the one given, which stays, or one that goes."""
    if given is not None:
        given.mkdir(parents=True, exist_ok=True)
        yield given.resolve()
        return
    with tempfile.TemporaryDirectory(prefix="growth-") as temporary:
        yield Path(temporary)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tools.growth", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = [work.name for work in WORKS]
    parser.add_argument("--small", action="store_true", help="sizes that take minutes, without goals")
    parser.add_argument("--only", type=lambda text: text.split(","), default=names, help=", ".join(names))
    parser.add_argument("--sizes", type=lambda text: [int(one) for one in text.split(",")], help="in place of its own")
    parser.add_argument("--folder", type=Path, help="where to work; it stays (default: temporary)")
    given = parser.parse_args(argv)
    missed = False
    with folder_of(given.folder) as root:
        for work in WORKS:
            if work.name not in given.only:
                continue
            before: tuple[int, Measured] | None = None
            for size in given.sizes or (work.small if given.small else work.sizes):
                now = measure(work, size, root)
                said = line(work, size, now, before)
                print(said, flush=True)
                missed |= "; MISSES" in said
                before = size, now
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
