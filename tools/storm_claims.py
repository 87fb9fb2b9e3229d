"""Many processes that claim cells, are killed and stopped, on machines whose clocks differ and that lock no files.

`python -m tools.storm_claims --cells 1000` prints what happened; it ends with 1 if two holders of a cell
both wrote, or a cell has weights of another attempt than its record.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import errno
import fcntl
import json
import multiprocessing
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from bench.core import files
from bench.core.environment import now
from bench.core.errors import UserError
from bench.store import lease
from bench.store.lease import LeaseLost, claim
from bench.store.study import WEIGHTS, CellDirectory
from bench.study.record import Attempt
from tests.analysis._records import World

EXPIRES, HEARTBEAT = 0.8, 0.1
APART, REPEATED = 0.3, 0.1  # shares of renames in two steps, and of answers that are lost
CLOCK = 600.0  # seconds by which the machines' clocks are ahead or behind
RECORD = World().records()[0]


def answer_as_a_network(chance: random.Random) -> None:
    """Names change as on a network file system: a rename takes the old file away a moment before the new one is there,
    and an answer that was lost is asked for again, so that what was done is said to be impossible."""
    own_replace, own_rename, own_link = os.replace, os.rename, os.link

    def rename(source: str, target: str, how=own_rename) -> None:
        if chance.random() < APART and os.path.isfile(target):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(target)
            time.sleep(chance.uniform(0, 0.005))
        how(source, target)
        if chance.random() < REPEATED:
            how(source, target)

    def link(source: str, target: str) -> None:
        own_link(source, target)
        if chance.random() < REPEATED:
            own_link(source, target)

    os.rename, os.link = rename, link
    os.replace = lambda source, target: rename(source, target, own_replace)


def be_on_a_machine(number: int, *, locks: bool) -> None:
    """Two processes each share a machine, with a clock of its own."""
    ahead = random.Random(number // 2).uniform(-CLOCK, CLOCK)
    own_time, utime = time.time, os.utime
    time.time = lambda: own_time() + ahead
    os.utime = lambda path, times=None, **rest: utime(path, times or (time.time(),) * 2, **rest)
    lease.EXPIRES_AFTER, lease.HEARTBEAT = EXPIRES, HEARTBEAT
    lease._machine = lambda: f"machine {number // 2}"

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    if not locks:
        fcntl.flock = refuse  # type: ignore[assignment]


def work(folder: Path, number: int, seed: int, cells: int, locks: bool, network: bool) -> None:
    """Claim cells that have no record, and do as a worker does, until every cell has one."""
    be_on_a_machine(number, locks=locks)
    if network:
        answer_as_a_network(random.Random(seed))
    chance, log = random.Random(seed), os.open(folder / "log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def note(what: str, directory: CellDirectory, token: str) -> None:
        os.write(log, f"{json.dumps([what, directory.path.name, token])}\n".encode())

    directories = [CellDirectory(folder / "cells" / f"cell-{k:04d}") for k in range(cells)]
    while directories := [d for d in directories if not d.record.exists()]:
        directory = chance.choice(directories[:4])
        directory.path.mkdir(parents=True, exist_ok=True)
        with claim(directory.lease) as held:
            if held is None:
                time.sleep(0.002)
            elif directory.is_done():
                directory.settle()
            else:
                attempt(directory, held, chance, note)


def attempt(directory, held, chance, note) -> None:
    path = directory.new_attempt()
    token = f"{path.name} {os.getpid()} {chance.random()}"
    started = f"{now()} {token}"
    files.write_sealed(path / "status.json", {"started": started, "outcome": "running"})
    note("claim", directory, token)

    def check() -> None:
        held.check()
        directory.check_attempt(path)

    try:
        for _ in range(3):
            time.sleep(chance.uniform(0, 0.01))
            note("ask", directory, token)
            check()
            note("write", directory, token)
        files.write_bytes(path / WEIGHTS, token.encode(), before=check)
        check()
        log = (*directory.attempt_log(up_to=path)[:-1], Attempt(outcome="complete", started=started))
        directory.publish(dataclasses.replace(RECORD, directory=directory.path.name, reason=token, attempts=log))
        note("record", directory, token)
        directory.settle()
    except LeaseLost:
        note("lost", directory, token)
    except UserError:  # the next holder has cleared away what this one was just writing
        note("lost", directory, token)


def storm(folder: Path, *, cells: int, processes: int, locks: bool, seed: int, network: bool = False) -> Counter:
    """Run it; returns how often what happened."""
    chance, context = random.Random(seed), multiprocessing.get_context("fork")
    running: dict[int, multiprocessing.Process] = {}
    happened: Counter = Counter()
    (folder / "cells").mkdir()

    def start(number: int) -> None:
        running[number] = context.Process(
            target=work, args=(folder, number, chance.randrange(2**31), cells, locks, network)
        )
        running[number].start()

    for number in range(processes):
        start(number)
    stopped: dict[int, float] = {}
    while any(process.is_alive() for process in running.values()):
        time.sleep(chance.uniform(0, 0.05))
        for number in [n for n, until in stopped.items() if until < time.monotonic()]:
            with contextlib.suppress(ProcessLookupError):  # it has ended
                os.kill(running[number].pid, signal.SIGCONT)
            del stopped[number]
        number = chance.randrange(processes)
        if not running[number].is_alive():
            if running[number].exitcode:
                running[number].join()
                start(number)
        elif number not in stopped:
            if chance.random() < 0.4:
                happened["killed"] += 1
                running[number].kill()
                running[number].join()
                start(number)
            else:
                happened["stopped"] += 1
                os.kill(running[number].pid, signal.SIGSTOP)
                stopped[number] = time.monotonic() + chance.choice((0.05, 2 * EXPIRES))
    return happened + judge(folder, cells)


def judge(folder: Path, cells: int) -> Counter:
    """Count what the log tells, and everything that must not be."""
    counts: Counter = Counter()
    writers: dict[str, list[str]] = {}
    records: dict[str, set[str]] = {}
    late: dict[str, bool] = {}  # whether a later holder had written before one asked: who is stopped after it is not
    for what, cell, token in map(json.loads, (folder / "log").read_text().splitlines()):
        counts[what] += 1
        order = writers.setdefault(cell, [])
        if what == "ask":
            late[token] = token in order[:-1] and order[-1] != token
        elif what == "write":
            counts["WRITES AFTER A LATER HOLDER'S"] += late[token]
            order += [token] if not order or order[-1] != token else []
        elif what == "record":
            records.setdefault(cell, set()).add(token)
    lease.EXPIRES_AFTER = EXPIRES
    for k in range(cells):
        directory = CellDirectory(folder / "cells" / f"cell-{k:04d}")
        patience = time.monotonic() + 10 * EXPIRES
        directory.tidy()  # as the next run does, which waits until a dead holder's lease has expired
        while directory.lease.exists() and time.monotonic() < patience:
            time.sleep(HEARTBEAT)
            directory.tidy()
        token = directory.read_record().reason
        counts["RECORDS REPLACED"] += bool(records.get(directory.path.name, {token}) - {token})
        weights = directory.weights / WEIGHTS
        counts["WEIGHTS OF ANOTHER ATTEMPT"] += not weights.exists() or weights.read_text() != token
        for left in directory.path.rglob(".*.tmp"):
            counts["temporary files of killed processes"] += 1
            left.unlink()
    return counts


WRONG = ("WRITES AFTER A LATER HOLDER'S", "RECORDS REPLACED", "WEIGHTS OF ANOTHER ATTEMPT")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cells", type=int, default=1000)
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--locks", action="store_true", help="on a file system that locks files")
    parser.add_argument("--network", action="store_true", help="on one that changes names as networks do")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
        counts = storm(
            Path(folder),
            cells=options.cells,
            processes=options.processes,
            locks=options.locks,
            seed=options.seed,
            network=options.network,
        )
    print(", ".join(f"{counts[what]} {what}" for what in (*WRONG, *sorted(set(counts) - set(WRONG)))))
    return 1 if any(counts[what] for what in WRONG) else 0


if __name__ == "__main__":
    sys.exit(main())
