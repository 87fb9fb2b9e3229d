"""A fault at every open, write, fsync, rename and link of a small run, one at a time.

`python -m tools.storm_faults` injects them by number into a run (plan, training, evaluation, saving,
report) whose processes are forked from this one, and then runs the same command again. It prints every round that is
not as it should be: a run that met a fault ends with one sentence and another exit code than 0, or with the same
records all the same (logs, kept rates and clean-up may fail without harm); the next run ends with 0, the same records,
and nothing left.

`--events 100 --seed 1` has accidents happen at random instead: a process is killed at an operation on a
file, or meets a fault there; then a file of the study has a bit flipped, is cut short, deleted, or replaced by a link
to a copy outside. The same command ends with the same records, once what it names is removed; nothing outside changes.
"""

from __future__ import annotations

import argparse
import builtins
import contextlib
import errno
import importlib
import io
import multiprocessing
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.reliability import storms

ARGUMENTS = (
    "--suite",
    "smoke",
    "--models",
    "ViT-pico/14",
    "--horizons",
    "0,64",
    "--set",
    "warmup=0",
    "--only",
    "*-100_*",
    "--workers",
    "1",
    "--scale",
    "cpu",
    "--device",
    "cpu",
)
ROLES = ("run", "worker")
CODES = (errno.ENOSPC, errno.EIO, errno.EROFS)

FORK = multiprocessing.get_context("fork")


class Injector:
    """Counts what a process does to files below `root`, and lets the one with the given number fail.

    Args:
        fail: the number in each role; 0 for none. The counters are shared by the processes that are forked later.
    """

    def __init__(self, root: Path, fail: dict[str, int], code: int) -> None:
        self.root, self.fail, self.code, self.role = str(root), fail, code, "run"
        self.counts = {role: FORK.Value("i", 0) for role in ROLES}
        self.done = FORK.Array("c", 200)
        self.thread = None

    def reach(self, what: str, path: Any) -> None:
        """Count, and fail or (where the code is 0) kill this process."""
        path = os.fspath(path) if not isinstance(path, int) else self._of(path)
        if isinstance(path, bytes) or not path.startswith(self.root):
            return
        count = self.counts[self.role]
        with count.get_lock():
            count.value += 1
            number = count.value
        if number == self.fail.get(self.role):
            self.done.value = f"{what} {path.removeprefix(self.root)}"[-199:].encode()
            if not self.code:
                os.kill(os.getpid(), signal.SIGKILL)
            raise OSError(self.code, os.strerror(self.code), path)

    def _of(self, handle: int) -> str:
        try:
            return os.readlink(f"/proc/self/fd/{handle}")
        except OSError:
            return ""

    def install(self) -> None:
        """Patch this process, and those that it forks."""
        real_open = io.open
        injector = self

        class Raw(io.FileIO):
            def write(self, data: Any) -> int:
                injector.reach("write", self.fileno())
                return super().write(data)

        def faulty_open(
            file: Any,
            mode: str = "r",
            buffering: int = -1,
            encoding: Any = None,
            errors: Any = None,
            newline: Any = None,
            closefd: bool = True,
            opener: Any = None,
        ) -> Any:
            if isinstance(file, int) or not os.fspath(file).startswith(injector.root):
                return real_open(file, mode, buffering, encoding, errors, newline, closefd, opener)
            injector.reach("open", file)
            if not set(mode) & set("wxa+"):
                return real_open(file, mode, buffering, encoding, errors, newline, closefd, opener)
            raw = Raw(file, mode.replace("b", "").replace("t", ""), closefd, opener)
            buffered = io.BufferedRandom(raw) if "+" in mode else io.BufferedWriter(raw)
            return buffered if "b" in mode else io.TextIOWrapper(buffered, encoding, errors, newline)

        builtins.open = io.open = faulty_open  # type: ignore[assignment]
        for name in ("open", "fsync", "replace", "rename", "link", "write"):
            self._patch(name)

    def _patch(self, name: str) -> None:
        real: Callable[..., Any] = getattr(os, name)

        def faulty(target: Any, *rest: Any, **named: Any) -> Any:
            self.reach(name, target)
            return real(target, *rest, **named)

        setattr(os, name, faulty)


class Forked:
    """Stands for `subprocess.Popen` of one of the project's modules: a fork, with everything imported already."""

    def __init__(self, command: list[str], *, stdout: Any, stderr: Any, **_: Any) -> None:
        main = importlib.import_module("bench.execute.worker").main
        reader, writer = os.pipe()
        self.returncode: int | None = None
        self.pid = os.fork()
        if not self.pid:
            os.close(reader)
            os.dup2(writer, 1)
            os.dup2(stderr.fileno(), 2)
            os.close(writer)
            sys.stdout, sys.stderr = os.fdopen(1, "w", closefd=False), os.fdopen(2, "w", closefd=False)
            INJECTOR[0].role = "worker"
            leave(lambda: main([*command[3:]]))
        os.close(writer)
        self.stdout = os.fdopen(reader)

    def poll(self) -> int | None:
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.returncode = os.waitstatus_to_exitcode(status) if pid else None
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        while self.poll() is None:
            time.sleep(0.01)
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)


INJECTOR: list[Injector] = []


def leave(main: Callable[[], int]) -> None:
    """End a forked process as Python would end after `main`."""
    code = 1
    try:
        code = main()
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else 1
    except BaseException:
        traceback.print_exc()
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


def round_of(root: Path, said: Path, fail: dict[str, int], code: int = errno.EIO) -> tuple[int, str, Injector]:
    """One run in a forked process, with a fault; returns its exit code and what it said."""
    injector = Injector(root, fail, code)
    pid = os.fork()
    if not pid:
        with open(said, "wb") as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
        sys.stdout, sys.stderr = os.fdopen(1, "w", closefd=False), os.fdopen(2, "w", closefd=False)
        from bench import run
        from bench.core import environment
        from bench.cost import peaks
        from bench.execute import local
        from bench.plan import estimate
        from bench.suites import smoke

        estimate.MIN_PROCESSOR_SHARE = 0.0  # rates are kept, however busy the machine is
        environment.cores = lambda: 1  # threads that wait for each other take longer than one
        assumed = peaks.PeakRate(flops_per_second=1e10, source="assumed")
        peaks.peak = lambda *_, **__: assumed  # half a second of products at every start, of no interest here
        real = local.subprocess.Popen
        forked = lambda command, **rest: (Forked if "bench.worker" in command else real)(command, **rest)  # noqa: E731
        local.subprocess.Popen = forked  # type: ignore[misc, assignment]
        smoke.SUITE = replace(smoke.SUITE, figures=())
        INJECTOR[:] = [injector]
        injector.install()
        leave(lambda: run.main([*ARGUMENTS, "--results", str(root / "results")]))
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status), said.read_text(errors="replace"), injector


def judge(code: int, text: str, fault: str) -> list[str]:
    problems = ["a traceback"] if "Traceback" in text else []
    if code not in (0, 2, 3):
        problems.append(f"exit code {code}")
    if (code == 2 and "\nerror: " not in f"\n{text}") or (code == 3 and "failed" not in text):
        problems.append("no sentence")
    return problems


def damage(chance: random.Random, study: Path, outside: Path) -> tuple[str, Path | None]:
    """Do something to one file of a study. Returns what, and which."""
    paths = sorted(path for path in study.rglob("*") if path.is_file() and not path.is_symlink())
    act = chance.choice(("nothing", "flip", "cut", "delete", "link"))
    if act == "nothing" or not paths:
        return "nothing", None
    path = chance.choice(paths)
    data = bytearray(path.read_bytes())
    if act == "flip" and data:
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        path.write_bytes(data)
    elif act == "cut":
        path.write_bytes(data[: chance.randrange(len(data) + 1)])
    elif act == "delete":
        path.unlink()
    elif act == "link":
        target = outside / f"{len(list(outside.iterdir()))}-{path.name}"
        target.write_bytes(data)
        path.unlink()
        path.symlink_to(target)
    return act, path


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def accidents(folder: Path, events: int, seed: int, numbers: dict[str, int], expected: dict[str, Any]) -> int:
    """So many accidents; returns after how many of them something was not as it should be."""
    root, outside, chance = folder / "root", folder / "outside", random.Random(seed)
    outside.mkdir(exist_ok=True)
    happened, wrong = Counter[str](), 0
    for number in range(events):
        if chance.random() < 0.3:  # from the beginning
            shutil.rmtree(root / "results", ignore_errors=True)
        role, code = chance.choice(("run", "worker", "worker")), chance.choice((0, 0, 0, *CODES))
        fail = {role: chance.randint(1, numbers[role])}
        ended, text, injector = round_of(root, folder / "said", fail, code)
        problems = ["a traceback"] if "Traceback" in text else []
        act, path = damage(chance, root / "results", outside)
        kept = contents(outside)
        said = list[str]()
        for _ in range(4):
            again, text, _ = round_of(root, folder / "said", {})
            if again != 2 or path is None or path.name not in text:
                break
            said.append(text.strip().splitlines()[-2:][0])
            path.unlink(missing_ok=True)  # as the sentence says
        reached = storms.outcome(root / "results" / "smoke")
        if weights := path is not None and path.name == "final.safetensors":  # nobody reads those of a finished cell
            reached = {name: (record, expected[name][1]) for name, (record, _) in reached.items()}
        if again or reached != expected:
            other = [name for name in expected.keys() | reached.keys() if expected.get(name) != reached.get(name)]
            problems.append(f"the next run ends with {again}, other records: {other}: {text[-600:]}")
        problems += ["a traceback in the next run"] if "Traceback" in text else []
        problems += ["something outside has changed"] if contents(outside) != kept else []
        problems += [f"left: {name}" for name in storms.leftovers(root)]
        happened[f"{'killed' if not code else errno.errorcode[code]} in the {role}"] += bool(injector.done.value)
        happened[act] += act != "nothing"
        happened["refused by name"] += bool(said)
        wrong += bool(problems)
        if problems or said:
            where = path and path.relative_to(root)
            print(
                f"{number}: {role} {fail[role]} {injector.done.value.decode()} code {code} ended {ended}; {act} {where}"
            )
            print("    " + "\n    ".join(problems or said), flush=True)
        if problems or weights:
            shutil.rmtree(root / "results", ignore_errors=True)
        if number % 20 == 19:
            print(f"{number + 1} of {events}: {dict(happened)}, {wrong} wrong", flush=True)
    print(f"{events} events: {dict(happened)}, {wrong} wrong")
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--role", choices=ROLES)
    parser.add_argument("--first", type=int, default=1, help="only those from this number on")
    parser.add_argument("--every", type=int, default=1, help="only every so many of them")
    parser.add_argument("--events", type=int, default=0, help="so many accidents at random instead")
    parser.add_argument("--seed", type=int, default=0, help="of them")
    options = parser.parse_args()
    for name in ("tests.reliability._preloaded", "bench.execute.local", "bench.plan.plan", "bench.run"):
        importlib.import_module(name)
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
        base, root = Path(folder) / "base", Path(folder) / "root"
        os.environ["VIT_BENCH_CACHE"] = str(root / "cache")
        (root / "cache").mkdir(parents=True)
        code, text, _ = round_of(root, Path(folder) / "said", {})
        assert code == 0, text
        expected = storms.outcome(root / "results" / "smoke")
        shutil.rmtree(root / "results")
        shutil.copytree(root, base)  # with kept rates, and decoded data
        code, text, injector = round_of(root, Path(folder) / "said", {})
        assert code == 0 and expected and storms.outcome(root / "results" / "smoke") == expected, text
        numbers = {role: injector.counts[role].value for role in ROLES}
        print(f"{numbers} operations on files", flush=True)
        if options.events:
            return 1 if accidents(Path(folder), options.events, options.seed, numbers, expected) else 0
        counts: Counter[str] = Counter()
        for role in ROLES if options.role is None else (options.role,):
            order = list(range(options.first, numbers[role] + 1, options.every))
            random.Random(0).shuffle(order)  # one that is cut short is a sample
            for rounds, number in enumerate(order):
                if rounds % 20 == 19:
                    print(f"{role}: {rounds + 1} of {len(order)}, {dict(counts)}", flush=True)
                shutil.rmtree(root)
                shutil.copytree(base, root)
                code, text, injector = round_of(root, Path(folder) / "said", {role: number}, CODES[number % len(CODES)])
                fault = injector.done.value.decode() or "not reached"
                problems = judge(code, text, fault)
                if code == 0 and storms.outcome(root / "results" / "smoke") != expected:
                    problems.append("exit code 0, and not the records")
                again, said, _ = round_of(root, Path(folder) / "said", {})
                if again or storms.outcome(root / "results" / "smoke") != expected:
                    problems.append(f"the next run ends with {again}, or other records: {said[-300:]}")
                problems += [f"left: {name}" for name in storms.leftovers(root)]
                counts["not reached" if fault == "not reached" else f"exit code {code}"] += 1
                counts["wrong"] += bool(problems)
                if problems or code == 0:
                    print(f"{role} {number}: {fault}: exit code {code}: {'; '.join(problems) or 'no harm'}", flush=True)
                    if problems:
                        print("    " + "\n    ".join(text.strip().splitlines()[-6:]), flush=True)
        print(", ".join(f"{count} {what}" for what, count in sorted(counts.items())))
    return 1 if counts["wrong"] else 0


if __name__ == "__main__":
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    sys.exit(main())
