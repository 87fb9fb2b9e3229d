"""Killed anywhere, the same command finishes the job, with the same numbers to the last bit."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bench.core.record import Record
from bench.core.spec import Cell, TaskSpec, to_json
from bench.store import faults
from bench.store.records import read_record
from bench.store.study import Study
from bench.suites._recipes import recipe_for
from tests.conftest import PROJECT
from tests.reliability._attempt import attempt

TASK = TaskSpec(task="fewshot", data="digits", options=(("shots", (5,)), ("draws", 2), ("test_limit", 200)))
CELL = Cell(
    model="ViT-pico/14", data="fashion-mnist", num_images=200, horizons=(0, 640, 1280, 2560), seed=1, tasks=(TASK,),
    recipe=recipe_for("ViT-pico/14", warmup_images=128),
)  # fmt: skip

TIMES = {
    "images_per_second", "flops_per_second", "utilisation", "core_days", "seconds", "peak_memory_bytes",
    "peak_flops_per_second", "peak_source", "environment", "attempts",
}  # fmt: skip


def timeless(value):
    """A record without its times and attempts: what must not differ."""
    if isinstance(value, Record):
        value = to_json(value)
    if isinstance(value, dict):
        return {k: timeless(v) for k, v in value.items() if k not in TIMES}
    return [timeless(item) for item in value] if isinstance(value, list) else value


def worker(store: Path) -> subprocess.Popen:
    cells = store.parent / "cells.json"
    cells.write_text(json.dumps([to_json(CELL)]))
    command = [sys.executable, "-m", "bench.worker", "--store", str(store), "--cells", str(cells), "--suite", "test"]
    environment = os.environ | {"PYTHONPATH": str(PROJECT), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(store: Path) -> int:
    process = worker(store)
    process.communicate(timeout=300)
    return process.returncode


def outcome(store: Path) -> tuple[dict, bytes]:
    """The record without times, and the trained weights."""
    directory = Study(store).cell(CELL)
    return timeless(read_record(directory.record)), (directory.weights / "final.safetensors").read_bytes()


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    store = tmp_path_factory.mktemp("whole") / "test"
    assert finish(store) == 0
    return outcome(store)


POINTS = [
    "training-step:1", "training-step:37", "after-evaluation", "after-evaluation:3", "checkpoint-before-rename:2",
    "checkpoint-after-rename:2", "record-before-replace", "record-after-replace",
]  # fmt: skip


@pytest.mark.parametrize("point", POINTS)
def test_sigkill_at_a_named_point(tmp_path, uninterrupted, point):
    assert point.partition(":")[0] in faults.POINTS
    store = tmp_path / "test"
    assert attempt(store, [CELL], point, suite="test") == -signal.SIGKILL
    assert attempt(store, [CELL], suite="test") == 0
    assert outcome(store) == uninterrupted
    assert not list(store.rglob("*.tmp")) and not list(store.rglob("lease.json"))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR2], ids=lambda n: n.name)
def test_a_signal_saves_at_the_next_step_and_says_so(tmp_path, uninterrupted, number):
    store = tmp_path / "test"
    process = worker(store)
    for line in process.stdout:
        event = json.loads(line)
        if event["event"] == "progress" and event["done"] > 10:
            break
    process.send_signal(number)
    process.communicate(timeout=60)
    assert process.returncode == 130
    (stopped,) = Study(store).cell(CELL).attempts()
    assert json.loads((stopped / "status.json").read_text())["outcome"] == "interrupted"
    assert attempt(store, [CELL], suite="test") == 0
    assert outcome(store) == uninterrupted
    assert [a.outcome for a in read_record(Study(store).cell(CELL).record).attempts] == ["interrupted", "complete"]


def test_a_signal_to_the_command_saves_every_cell_and_says_how_to_go_on(tmp_path):
    """As a cluster sends it before a job's time is up."""
    command = [sys.executable, "-m", "bench.run", "--suite", "smoke", "--models", "ViT-pico/14", "--horizons",
               "100000", "--results", str(tmp_path)]  # fmt: skip
    environment = os.environ | {"PYTHONPATH": str(PROJECT)}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 120
    while not list(tmp_path.glob("smoke/cells/*/attempts/*/metrics.jsonl")) and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGUSR2)
    output, errors = process.communicate(timeout=120)
    assert process.returncode == 130, output + errors
    assert "Run the same command to continue" in errors
    statuses = [json.loads(path.read_text()) for path in tmp_path.glob("smoke/cells/*/attempts/*/status.json")]
    assert "interrupted" in {status["outcome"] for status in statuses}
    assert list(tmp_path.glob("smoke/cells/*/checkpoints/step-*/manifest.json"))


def test_two_workers_share_a_store_and_do_each_cell_once(tmp_path, uninterrupted):
    store = tmp_path / "test"
    pair = [worker(store), worker(store)]
    for process in pair:
        process.communicate(timeout=300)
        assert process.returncode == 0
    assert outcome(store) == uninterrupted
    assert len(Study(store).cell(CELL).attempts()) == 1
