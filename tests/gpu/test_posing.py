"""Every command on a CPU that poses as two GPUs: plans, workers, training, evaluation, timing, races."""

from __future__ import annotations

import dataclasses
import json

import pytest
import torch

from bench import probe, run
from bench.core import device
from bench.core.spec import Cell, Recipe
from bench.execute.jobs import peers, speed
from bench.execute.jobs._contract import JobContext
from bench.execute.peers import contenders
from bench.execute.peers.contenders import Contender
from bench.store.records import read_record
from bench.store.study import Study
from tests.gpu.posing import NAME, posing


@pytest.fixture
def gpu():
    with posing():
        yield
    torch.set_num_threads(1)


def context(folder, cell, log=lambda _: None):
    directory = Study(folder).cell(cell)
    directory.prepare(cell)
    return JobContext(
        directory=directory, attempt=directory.new_attempt(), device="cuda", threads=1, progress=lambda _: None,
        should_stop=lambda: False, log=log,
    )  # fmt: skip


@pytest.mark.slow
def test_a_study_runs_on_both_devices(gpu, tmp_path, capsys):
    """Planned, calibrated, trained by a worker on each device, evaluated, reported."""
    arguments = [
        "--suite", "smoke", "--device", "cuda", "--scale", "gpu", "--results", str(tmp_path), "--json",
        "--models", "ViT-pico/14,R8x0.125-s2", "--only", "*-100_s0", "--horizons", "512",
    ]  # fmt: skip
    assert run.main(arguments) == 0
    records = [read_record(path) for path in sorted(tmp_path.glob("smoke/cells/*/record.json"))]
    assert len(records) == 2
    for record in records:
        assert record.status == "complete" and record.environment.accelerator == NAME
        how = record.execution
        assert (how.device, how.accelerators, how.dtype, how.compile_mode) == ("cuda", 1, "bfloat16", "reduce-overhead")
        assert {score.task for row in record.horizons for score in row.scores} == {"upstream", "fewshot"}
        assert all(0 <= score.value <= 1 for row in record.horizons for score in row.scores)
        assert "data sheet" in record.cost.peak_source
    vit = next(record for record in records if record.model.family == "ViT")
    assert vit.execution.attention_kernels[-1] == "math"


def test_probe(gpu, tmp_path, capsys):
    arguments = ["--model", "ViT-pico/14", "--data", "digits", "--task", "fewshot", "--device", "cuda"]
    assert probe.main(arguments) == 0
    assert "digits" in capsys.readouterr().out


def test_speed(gpu, tmp_path, monkeypatch):
    from bench.cost import timing

    quick = timing.Pace(windows=2, seconds=0.01, slowest_call=0.02, latency_calls=3)
    monkeypatch.setattr(timing, "Pace", lambda: quick)
    monkeypatch.setattr("bench.execute.workloads.Subject.largest_inference", lambda self, **_: 8)
    cell = Cell(model="ViT-pico/14", data="noise", image_size=28, channels=3, recipe=Recipe(batch=4), job="speed")
    said: list[str] = []
    result = speed.run(cell, context(tmp_path, cell, said.append))
    found = result.speed
    assert result.status == "complete" and not [line for line in said if "not compiled" in line]
    assert found.compiled.images_per_second.n == found.training.images_per_second.n == 2
    assert found.largest_batch.found_inference == 8 and found.largest_batch.device_bytes
    assert found.memory.training_peak_bytes and found.conditions.device == NAME


CELL = Cell(
    model="ViT-b/14", model_options=(("gelu", "exact"), ("depth", 1)), data="fashion-mnist", num_images=64,
    image_size=28, channels=1, recipe=Recipe(batch=8, lr=1e-3), horizons=(64,), job="peers",
)  # fmt: skip


@pytest.mark.slow
def test_peers_one_at_a_time(gpu, tmp_path, monkeypatch):
    """Their processes are never there together, each round starts them anew, and what runs out of memory later than in
    its first steps is left out and not an error."""
    entrants = (
        Contender(name=contenders.OWN, package=None),
        Contender(name=contenders.BASE, package="timm"),
    )
    monkeypatch.setattr(contenders, "contenders", lambda device, threads: entrants)
    monkeypatch.setitem(peers.ROUNDS, "cuda", 2)
    monkeypatch.setitem(peers.WINDOWS, "cuda", 1)
    monkeypatch.setitem(peers.WINDOW_SECONDS, "cuda", 0.01)
    alive: list[int] = []
    monkeypatch.setattr(peers.Entrant, "window", watched(peers.Entrant.window, alive))
    result = peers.run(CELL, context(tmp_path, CELL))
    ours, theirs = result.peers.contenders
    assert result.status == "complete", result.reason
    assert len(ours.windows) == len(theirs.windows) == 2 and max(alive) == 1
    assert ours.losses == pytest.approx(theirs.losses, rel=0.02)  # theirs are of float32


def watched(window, alive):
    running: set = set()

    def once(self, seconds):
        running.add(self)
        alive.append(sum(process.poll() is None for entrant in running for process in entrant.processes))
        return window(self, seconds)

    return once


def test_a_contender_that_runs_out_of_memory_in_a_window_is_left_out(tmp_path, monkeypatch):
    answers = iter([{"call_seconds": 0.1, "dtype": "bfloat16", "params": 1}, {"left_out": "out of memory"}])
    monkeypatch.setattr(peers.subprocess, "Popen", lambda *_, **__: Answering(answers))
    contestant = peers.Entrant(Contender(name="x", package=None), CELL, context(tmp_path, CELL))
    contestant.start()
    contestant.window(1.0)
    contestant.window(1.0)
    assert contestant.left_out == "out of memory" and contestant.rates == []
    assert contestant.summary(1, 1.0).left_out == "out of memory"


class Answering:
    """A process that says what it is told to."""

    def __init__(self, answers):
        self.answers = answers
        self.stdin = self.stdout = self

    def write(self, _):
        pass

    def flush(self):
        pass

    def readline(self):
        return json.dumps(next(self.answers)) + "\n"

    def kill(self):
        pass

    def wait(self):
        return 0


def test_every_worker_has_a_device_of_its_own(monkeypatch):
    monkeypatch.setattr(device.subprocess, "run", lambda *_, **__: dataclasses.make_dataclass("R", ["stdout"])(""))
    for name in device.VISIBLE:
        monkeypatch.delenv(name, raising=False)
    with posing():
        assert device.accelerators("cuda") == ("0", "1") and device.accelerators("cpu") == ()
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3, 5,7")
        assert device.accelerators("cuda") == ("3", "5", "7")
    three = ("3", "5", "7")
    assert [device.place(three, worker) for worker in range(4)] == [("3",), ("5",), ("7",), ("3",)]
    assert device.place(("0", "1", "2", "3"), 1, ranks=2) == ("2", "3") and device.place((), 5) == ()
    from bench.core.subprocesses import child_environment

    assert child_environment(1, devices=("5",))["CUDA_VISIBLE_DEVICES"] == "5"


PARTS = """GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-5c89852c-d268-c3f3-1b07-005d5ae1dc3f)
  MIG 3g.40gb     Device  0: (UUID: MIG-1)
  MIG 3g.40gb     Device  1: (UUID: MIG-2)
"""


def test_parts_of_a_divided_gpu_are_devices(monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(device.subprocess, "run", lambda *_, **__: dataclasses.make_dataclass("R", ["stdout"])(PARTS))
    assert device.accelerators("cuda") == ("MIG-1", "MIG-2")
