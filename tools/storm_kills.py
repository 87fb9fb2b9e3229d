"""Kills, stops and signals at random times to whatever belongs to a run: the command, its workers, its calibrators.

`python -m tools.storm_kills --events 100` runs one small study after the other (plan, calibration, training,
evaluation, saving, report) and begins each again until it ends with 0. In the end its records and weights are those of
an undisturbed run bit for bit, exit codes are right, no process and no temporary file is left.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

from bench.core.errors import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_OK, EXIT_USAGE
from tests.reliability import storms

ROLES = {"bench.run": "run", "bench.worker": "worker", "bench.plan.calibrate": "calibrator"}
ORPHANS = 60.0  # seconds in which processes whose parent was killed leave: they look between steps


def role_of(pid: int) -> str | None:
    try:
        arguments = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    except OSError:
        return None
    return next((role for module, role in ROLES.items() if module in arguments), None)


def family(pid: int) -> list[int]:
    """A process and those that it has started."""
    pids = [pid]
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            pids += [int(child) for child in task.read_text().split()]
        except OSError:
            continue
    return pids


class Storm:
    """Counts of events and of exit codes, and everything that was wrong."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self.chance = folder, random.Random(seed)
        self.events: Counter[str] = Counter()
        self.wrong: list[str] = []

    def strike(self, pid: int) -> str | None:
        """Do something to one process of a run; returns to whom what was done."""
        by_role: dict[str, list[int]] = {}
        for member in family(pid):
            if (role := role_of(member)) is not None:
                by_role.setdefault(role, []).append(member)
        if not by_role:
            return None
        role = self.chance.choice(sorted(by_role))
        target = self.chance.choice(by_role[role])
        act = self.chance.choices(("kill", "stop", "term"), (5, 3, 2))[0]
        try:
            if act == "stop":
                os.kill(target, signal.SIGSTOP)
                time.sleep(self.chance.uniform(0.2, 3.0))
                os.kill(target, signal.SIGCONT)
            else:
                os.kill(target, signal.SIGKILL if act == "kill" else signal.SIGTERM)
        except ProcessLookupError:
            return None
        self.events[f"{act} {role}"] += 1
        return f"{act} {role}"

    def study(self, number: int, *, events: int, mean: float) -> None:
        """One study, disturbed until it is done, or until there have been as many events."""
        results, done = self.folder / f"study{number}", False
        while not done:
            run = storms.start(results, self.folder / "cache", "--calibrate")
            strikes: list[str] = []
            while run.poll() is None and self.struck < events:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    run.wait(self.chance.expovariate(1 / mean))
                if run.poll() is None and (what := self.strike(run.pid)) is not None:
                    strikes.append(what)
            output, errors = run.communicate()
            allowed = {EXIT_OK}
            if "kill run" in strikes:
                allowed |= {-signal.SIGKILL}
            if any(strike.startswith("term") for strike in strikes):
                allowed |= {EXIT_INTERRUPTED, EXIT_USAGE, -signal.SIGTERM}
            if {"kill worker", "kill calibrator"} & set(strikes):
                allowed |= {EXIT_USAGE, EXIT_FAILED}
            about = f"study {number}, {strikes}: exit code {run.returncode}"
            if run.returncode not in allowed or "Traceback" in output + errors:
                self.wrong.append(f"{about}: {errors[-400:]}")
            if run.returncode in (EXIT_USAGE, EXIT_INTERRUPTED) and not errors.strip():
                self.wrong.append(f"{about}, without a word")
            self.wait_for_orphans(results, about)
            self.events[f"exit code {run.returncode}"] += 1
            done = run.returncode == EXIT_OK
        if storms.outcome(results / "smoke") != self.expected:
            self.wrong.append(f"study {number}: other records or weights")
        self.wrong += [f"study {number}: left {name}" for name in storms.leftovers(results)]
        self.wrong += [
            f"study {number}: left {path}"
            for path in (self.folder / "tmp").iterdir()
            if not path.name.startswith("torchinductor")
        ]  # torch keeps what it compiled

    def wait_for_orphans(self, results: Path, about: str) -> None:
        deadline = time.monotonic() + ORPHANS
        while (left := storms.ours(results)) and time.monotonic() < deadline:
            time.sleep(0.2)
        if left:
            self.wrong.append(f"{about}: processes {left} go on")
            storms.kill_all(results)

    def run(self, events: int, *, mean: float) -> None:
        self.expected = storms.undisturbed(self.folder)
        number = 0
        while self.struck < events:
            self.study(number, events=events, mean=mean)
            number += 1
            print(f"{number} studies, {self.struck} events: {dict(self.events)}; wrong: {self.wrong}", flush=True)

    @property
    def struck(self) -> int:
        return sum(count for what, count in self.events.items() if not what.startswith("exit"))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--mean", type=float, default=6.0, help="seconds between events")
    parser.add_argument("--folder", type=Path, help="an empty one, or another storm's (default: temporary)")
    options = parser.parse_args()
    with storms.folder_of(options) as folder:
        storm = Storm(folder, options.seed)
        storm.run(options.events, mean=options.mean)
    return 1 if storm.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
