"""The first ten minutes on a GPU: what is worth most to know comes first, and each line is kept at once.

    python -m tools.first_contact --out OUT                      on a GPU: everything that nine minutes allow
    python -m tools.first_contact --out OUT --only 'race:ViT-L/16;check:timing' --minutes 3
    python -m tools.first_contact --out OUT --cpu-rehearsal      on a processor, small: does the instrument itself work?

Each step is a process of its own with a limit of time; what it printed before it was ended counts. Steps of a stage run
side by side where they only ask whether something is right (and compile what later stages time), and alone where they
are timed. `OUT` gets first_contact.json (all lines, written anew after each), first_contact.md, first_contact.log and
records.tar.gz (what the small studies left). Nothing is changed about the GPU.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from tools.first_contact.plan import PROJECT, Line, Step, expectations, stages

# -- the process that starts the others --------------------------------------------------------------------------------


class Notebook:
    """All lines so far, also those of earlier calls, in files that are whole at any moment."""

    def __init__(self, out: Path) -> None:
        self.out, self.started, self.lock = out, time.monotonic(), threading.Lock()
        kept = out / "first_contact.json"
        self.lines: list[Line] = json.loads(kept.read_text(encoding="utf-8")) if kept.exists() else []
        self.earlier = len(self.lines)
        out.mkdir(parents=True, exist_ok=True)
        self._log = open(out / "first_contact.log", "a", encoding="utf-8")  # noqa: SIM115

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.started

    def log(self, text: str) -> None:
        with self.lock:
            self._log.write(f"{self.seconds:7.1f} {text}\n")
            self._log.flush()

    def add(self, step: str, line: Line) -> None:
        with self.lock:
            self.lines.append({"step": step, "at": round(self.seconds, 1), **line})
            self._replace("first_contact.json", json.dumps(self.lines, indent=1))
            self._replace("first_contact.md", f"{expectations(self.lines)}\n{table(self.lines)}")
        shown = {key: value for key, value in line.items() if key != "what"}
        self.log(f"{step}: {line.get('what', '')} {json.dumps(shown)}")
        print(f"{self.seconds:6.1f} {step}: {line.get('what', '')} {json.dumps(shown)}"[:400], flush=True)

    def _replace(self, name: str, text: str) -> None:
        beside = self.out / f".{name}"
        beside.write_text(text, encoding="utf-8")
        beside.replace(self.out / name)


def table(lines: list[Line]) -> str:
    """For people."""
    rows = ["| s | step | what | | |", "|---|---|---|---|---|"]
    for line in lines:
        rest = {k: v for k, v in line.items() if k not in ("step", "at", "what", "outcome")}
        said = ", ".join(f"{key} {value}" for key, value in rest.items())
        rows.append(f"| {line['at']} | {line['step']} | {line.get('what', '')} | {said} | {line.get('outcome', '')} |")
    return "\n".join(rows).replace("\n\n", "\n") + "\n"


def started_by(pid: int) -> list[int]:
    """All that a process has started, and what they have, in whatever session."""
    parents: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            parents[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
    found = [pid]
    for each in found:
        found += [child for child, parent in parents.items() if parent == each]
    return found[1:]


class Running:
    """A step's process; its lines go to the notebook as they come."""

    def __init__(self, step: Step, book: Notebook, given: argparse.Namespace, *, limit: float, side: int) -> None:
        self.step, self.book, self.ends = step, book, time.monotonic() + limit
        self.errors = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115
        arguments = ["--step", step.name, "--device", given.device, "--work", str(given.work), "--limit", str(limit)]
        arguments += ["--cpu-rehearsal"] if given.cpu_rehearsal else []
        environment = dict(os.environ) | {
            "PYTHONPATH": os.pathsep.join(filter(None, [str(PROJECT), os.environ.get("PYTHONPATH")])),
            "PYTHONUNBUFFERED": "1",
            "TORCHINDUCTOR_CACHE_DIR": str(given.work / "inductor"),
            "VIT_BENCH_CACHE": str(given.work / "cache"),
            "TORCHINDUCTOR_COMPILE_THREADS": str(max(1, (os.cpu_count() or 1) // min(4, side))),
        }
        self.started = time.monotonic()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tools.first_contact", *arguments],
            cwd=PROJECT,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
            start_new_session=True,
        )
        self.thread = threading.Thread(target=self._read, daemon=True)
        self.thread.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for text in self.process.stdout:
            try:
                line = json.loads(text)
            except ValueError:
                self.book.log(f"{self.step.name} said: {text.rstrip()}")
                continue
            self.book.add(self.step.name, line)

    def is_over(self) -> bool:
        return self.process.poll() is not None or time.monotonic() > self.ends

    def end(self) -> None:
        """Kill what is left of it, and say how it ended."""
        code = self.process.poll()
        # its group, and a study's workers, which have groups of their own
        for pid in (-self.process.pid, *started_by(self.process.pid)):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()
        self.thread.join(timeout=5)
        ended = "done" if code == 0 else "out of time" if code is None else f"exit code {code}"
        self.errors.seek(0)
        tail = self.errors.read()[-4000:]
        line: Line = {"what": "ended", "value": ended, "seconds": round(time.monotonic() - self.started, 1)}
        if code not in (0, None):
            line |= {"outcome": "fail", "said": (tail.strip().splitlines() or [""])[-1][:300]}
        self.book.add(self.step.name, line)
        if tail.strip():
            self.book.log(f"{self.step.name} wrote to standard error:\n{tail}")


def run_all(given: argparse.Namespace) -> int:
    """All stages within the time there is."""
    book, deadline = Notebook(given.out), time.monotonic() + 60 * given.minutes
    given.work.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    todo = stages(rehearsal=given.cpu_rehearsal)
    if given.only:
        asked = given.only.split(";" if ";" in given.only else ",")
        todo = [[Step(name, 600)] for name in asked]
    running: list[Running] = []
    try:
        for stage in todo:
            left = deadline - time.monotonic() - 5
            begun = [step for step in stage if left >= step.least]
            for step in stage:
                if step not in begun:
                    book.add(step.name, {"what": "not begun", "value": f"{max(0, left):.0f} s left"})
            running = [
                Running(s, book, given, limit=min(given.patience * s.limit, left), side=len(begun)) for s in begun
            ]
            pending = list(running)
            while pending:
                time.sleep(0.1)
                for each in [each for each in pending if each.is_over()]:
                    each.end()
                    pending.remove(each)
                    keep_records(given)
            running = []
    finally:
        for each in running:
            each.end()
        keep_records(given)
    lines = book.lines[book.earlier :]
    failed = [line for line in lines if line.get("outcome") == "fail"]
    print(f"{len(lines)} lines, {len(failed)} failed, in {book.seconds:.0f} s", flush=True)
    for line in failed:
        print("FAIL", json.dumps(line)[:300], flush=True)
    return 0


def keep_records(given: argparse.Namespace) -> None:
    """The studies without checkpoints and weights, for the file that is brought back."""
    found = [p for p in given.work.glob("study-*/**/*") if p.name in ("record.json", "log.txt", "study.toml")]
    with contextlib.suppress(OSError), tarfile.open(given.out / ".records.tar.gz", "w:gz") as archive:
        for path in found:
            archive.add(path, arcname=str(path.relative_to(given.work)))
    with contextlib.suppress(OSError):
        (given.out / ".records.tar.gz").replace(given.out / "records.tar.gz")


# -- entry -------------------------------------------------------------------------------------------------------------


def lines_of(given: argparse.Namespace) -> Iterator[Line]:
    """The lines of one step."""
    from tools.first_contact import race, several, steps

    kind, _, rest = given.step.partition(":")
    whole = {
        "imports": steps.imports,
        "same": steps.same,
        "share": several.share,
        "share:mps": several.under_mps,
        "warm:shared": several.warm_shared,
    }
    of_one = {
        "check": steps.checks,
        "study": steps.study,
        "race": partial(race.race, only_warm=False),
        "warm": partial(race.race, only_warm=True),
        "mixed": race.mixed,
        "rates": race.rates,
        "named": race.named,
    }
    if given.step in whole:
        return whole[given.step](given)
    if kind in of_one:
        return of_one[kind](given, rest)
    raise ValueError(f"no step {given.step!r}")


def main(argv: list[str] | None = None) -> int:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--out", type=Path, default=Path(os.environ.get("OUT", "first-contact")), help="folder of results")
    p.add_argument("--minutes", type=float, default=9.0, help="for all steps")
    p.add_argument("--patience", type=float, default=1.0, help="times the limits of steps, for a busy processor")
    p.add_argument("--only", default="", help="these steps by name, divided by commas; or by semicolons")
    p.add_argument("--cpu-rehearsal", action="store_true", help="small sizes on a processor")
    p.add_argument("--device", default="", help="default: cuda; cpu for a rehearsal")
    p.add_argument("--work", type=Path, default=Path(tempfile.gettempdir(), "vit-bench-first-contact"), help="scratch")
    p.add_argument("--step", help=argparse.SUPPRESS)
    p.add_argument("--limit", type=float, default=600.0, help=argparse.SUPPRESS)
    given = p.parse_args(argv)
    given.device = given.device or ("cpu" if given.cpu_rehearsal else "cuda")
    if given.step is None:
        return run_all(given)
    if given.step.startswith("share-worker:"):
        _, index, folder = given.step.split(":", 2)
        from tools.first_contact import several

        several.share_worker(given, int(index), Path(folder))
        return 0
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is no line
    for line in lines_of(given):
        print(json.dumps(line, default=str), file=answers, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
