"""Shared by kills and storms: a small study, what must be equal whatever happened to it, what must not be left."""

import argparse
import contextlib
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from bench.store import lease
from bench.store.records import read_record
from bench.study.cell import Cell, to_json
from bench.study.record import Record
from tests.conftest import PROJECT
from tests.plan.making import costs_of

STUDY = ("--suite", "smoke", "--models", "ViT-pico/14", "--horizons", "0,640", "--scale", "cpu")
MARK = "STORM"  # variable of every process of a storm
TIMES = {
    "seconds",
    "images_per_second",
    "flops_per_second",
    "utilisation",
    "core_days",
    "peak_memory_bytes",
    "peak_flops_per_second",
    "peak_source",
    "environment",
    "attempts",
    "energy",
    "processor_seconds",
    "image_wait_seconds",
}


def timeless(value: Any) -> Any:
    """A record without its times, rates and attempts: what must not differ."""
    if isinstance(value, Record):
        value = to_json(value)
    if isinstance(value, dict):
        return {key: timeless(entry) for key, entry in value.items() if key not in TIMES}
    return [timeless(entry) for entry in value] if isinstance(value, list) else value


def outcome(store: Path) -> dict[str, Any]:
    """Records without times, and weights, by name of the cell."""
    cells: dict[str, Any] = {}
    for path in sorted(store.glob("cells/*/record.json")):
        weights = path.parent / "weights" / "final.safetensors"
        cells[path.parent.name] = timeless(read_record(path)), weights.exists() and weights.read_bytes()
    return cells


def leftovers(folder: Path) -> list[str]:
    """Files that a finished study must not hold."""
    names = ("lease.json", ".lease.lock", "checkpoints")
    found = [path for path in folder.rglob("*") if path.name.endswith(".tmp") or path.name in names]
    return [str(path.relative_to(folder)) for path in (*found, *folder.rglob("attempts/*/*.safetensors"))]


def until(condition: Callable[[], Any], seconds: float = 600.0) -> Any:
    """Wait for what makes a condition true, and return it. The limit is for what never happens: on a busy machine,
    everything takes its time."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, "it took too long"
        time.sleep(0.02)
    return value


def stopped(pid: int) -> bool:
    """Whether a signal has stopped a process."""
    return lease._stat(pid)[:1] == ["T"]


def trained_steps(store: Path) -> int:
    """How far any attempt in a study has come."""
    paths = store.glob("cells/*/attempts/*/metrics.jsonl")
    lines = (line for path in paths for line in path.read_text().splitlines())
    return max((json.loads(line).get("done", 0) for line in lines), default=0)


def worker_options(store: Path, cells: list[Cell]) -> list[str]:
    """The words that a worker on a CPU is started with for these cells."""
    listed, costs = store.with_suffix(".json"), store.with_suffix(".costs.json")
    listed.write_text(json.dumps([to_json(cell) for cell in cells]))
    costs.write_text(json.dumps(costs_of(cells)))
    options = ["--store", store, "--cells", listed, "--precomputed", costs, "--suite", "test", "--device", "cpu"]
    return [str(option) for option in options]


def free_ports(number: int) -> list[int]:
    """Ports at which nobody listens, below those that a system gives to whoever asks for any."""
    found = set[int]()
    while len(found) < number:
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", 10_000 + secrets.randbelow(10_000)))
            found.add(probe.getsockname()[1])
    return list(found)


def start(
    results: Path, cache: Path, *options: str, before: tuple[str, ...] = (), **variables: str
) -> subprocess.Popen:
    """`bench.run` of STUDY, in a session of its own."""
    environment = os.environ | {
        "PYTHONPATH": str(PROJECT),
        "VIT_BENCH_CACHE": str(cache),
        "TMPDIR": str(cache.parent / "tmp"),
        MARK: str(results),
        **variables,
    }
    (cache.parent / "tmp").mkdir(exist_ok=True)
    command = [*before, sys.executable, "-m", "bench.run", *STUDY, *options, "--results", str(results)]
    return subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )


def undisturbed(folder: Path) -> dict[str, Any]:
    """Outcome of a run to which nothing happens; one for all storms of the same folder."""
    if not (folder / "alone" / "smoke" / "report.html").exists():
        run = start(folder / "alone", folder / "cache")
        said = run.communicate()
        assert run.returncode == 0, said
    expected = outcome(folder / "alone" / "smoke")
    assert expected
    return expected


@contextlib.contextmanager
def folder_of(options: argparse.Namespace) -> Iterator[Path]:
    """The folder to work in: `--folder`, or one that goes."""
    with tempfile.TemporaryDirectory() as temporary:
        yield Path(options.folder or temporary)


def ours(results: Path) -> list[int]:
    """Processes that were started for a study, and theirs."""
    processes = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and int(folder.name) != os.getpid():
            try:
                variables = (folder / "environ").read_bytes().split(b"\0")
            except OSError:
                continue
            if f"{MARK}={results}".encode() in variables:
                processes.append(int(folder.name))
    return processes


def kill_all(results: Path) -> None:
    for pid in ours(results):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
