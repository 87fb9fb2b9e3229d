"""Large studies of short runs, whose workers are killed at random, and some of whose runs kill their own process, as
the kernel does where memory is short:

    python -m tools.storm_studies --studies 2 --cells 1000 --workers 8

Every study is begun again until nothing is left to do. It ends with 1 where a run was lost or done twice, where one
that kills is not given up with its reason, or where something half-written is left.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from bench.core.errors import EXIT_FAILED, EXIT_OK, EXIT_USAGE, UserError
from bench.store.study import KILLED, Study, state_of
from bench.study import registry
from bench.study.cell import Cell
from tests.conftest import PROJECT
from tests.execute import naps
from tools.storm_kills import family, role_of

DEADLY_EACH = 100  # runs, of which one kills its own process
KILL = (("kills", True), ("seconds", 0.0))


def cells_of(number: int, seconds: float) -> tuple[list[Cell], list[Cell]]:
    """Healthy runs, and those that kill."""
    deadly = [
        Cell(model="ViT-pico/14", data="fashion-mnist", seed=10_000_000 + seed, job="nap", model_options=KILL)
        for seed in range(number // DEADLY_EACH)
    ]
    return naps.naps(number - len(deadly), seconds=seconds), deadly


def work(store: Path, number: int, workers: int, seconds: float) -> int:
    """One run of a study; `EXIT_USAGE` where its workers were killed more often than they are started anew."""
    healthy, deadly = cells_of(number, seconds)
    try:
        return EXIT_FAILED if naps.run([*deadly, *healthy], store, executor="local", workers=workers) else EXIT_OK
    except UserError as error:
        print(error, file=sys.stderr)
        return EXIT_USAGE


def storm(store: Path, options: argparse.Namespace, chance: random.Random) -> Counter[str]:
    """Begin a study again until its healthy runs are done; returns how often what happened."""
    happened: Counter[str] = Counter()
    healthy, deadly = cells_of(options.cells, options.seconds)
    study = Study(store)
    sizes = ("--cells", str(options.cells), "--workers", str(options.workers), "--seconds", str(options.seconds))
    command = [sys.executable, "-m", "tools.storm_studies", "--only", str(store), *sizes]
    code = EXIT_USAGE
    while code not in (EXIT_OK, EXIT_FAILED) or not all(study.cell(cell).record.exists() for cell in healthy):
        happened["runs"] += 1
        with subprocess.Popen(command, cwd=PROJECT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as run:
            while run.poll() is None:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    run.wait(chance.expovariate(1 / options.mean))
                workers = [pid for pid in family(run.pid) if role_of(pid) == "worker"]
                if run.poll() is None and workers:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(chance.choice(workers), signal.SIGKILL)
                        happened["workers killed"] += 1
            errors = run.stderr.read().decode(errors="replace") if run.stderr else ""
        code = run.returncode
        happened[f"exit code {code}"] += 1
        happened["TRACEBACKS"] += "Traceback" in errors
        print(errors, end="", file=sys.stderr)
    return happened + judge(store, healthy, deadly)


def judge(store: Path, healthy: list[Cell], deadly: list[Cell]) -> Counter[str]:
    """Count what became of every run."""
    counts: Counter[str] = Counter()
    study = Study(store)
    for cell in healthy:
        directory = study.cell(cell)
        directory.tidy()  # as the next run does
        record = directory.read_record()
        if record is None or record.status != "complete" or record.cell.seed != cell.seed:
            counts["RUNS LOST"] += 1
            continue
        counts["runs done"] += 1
        ends = Counter(attempt.outcome for attempt in record.attempts)
        counts["RUNS DONE TWICE"] += ends["complete"] != 1
        counts["attempts that were killed"] += sum(ends.values()) - ends["complete"]
    for cell in deadly:
        state = state_of(study.cell(cell))
        counts["runs that kill, given up"] += state.note == KILLED
        counts["RUNS THAT KILL, NOT GIVEN UP"] += state.note != KILLED
        counts["memory kills"] += len(study.cell(cell).attempts())
    known = {study.cell(cell).path.name for cell in (*healthy, *deadly)}
    counts["FOLDERS OF NO RUN"] += len({path.name for path in store.glob("cells/*")} - known)
    counts["LEFTOVERS"] += sum(1 for cell in healthy for _ in study.cell(cell).path.rglob(".*.tmp"))
    return counts


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--studies", type=int, default=2)
    parser.add_argument("--cells", type=int, default=1000)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=0.05, help="of a run")
    parser.add_argument("--mean", type=float, default=2.0, help="seconds between kills")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    os.environ[registry.PLUGINS] = str(naps.PLUGINS)
    registry.forget()
    if options.only:
        return work(options.only, options.cells, options.workers, options.seconds)
    wrong = 0
    for number in range(options.studies):
        with tempfile.TemporaryDirectory() as folder:
            counts = storm(Path(folder) / "study", options, random.Random(options.seed + number))
        print(f"study {number}: " + ", ".join(f"{count} {what}" for what, count in sorted(counts.items())), flush=True)
        wrong += sum(count for what, count in counts.items() if what.isupper())
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
