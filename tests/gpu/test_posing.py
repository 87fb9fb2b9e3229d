"""Every command on a CPU that poses as two GPUs: plans, workers, training, evaluation, timing, races."""

import contextlib
import dataclasses
import functools
import gc
import io
import os
import signal
import threading
import time
import weakref
from unittest import mock

import pytest
import torch
import torchvision

from bench import probe, run
from bench.core import device, environment
from bench.core.errors import UserError
from bench.core.spec import Cell, Recipe, TaskSpec
from bench.cost import memory, peaks, timing
from bench.data import cache
from bench.data.load import load
from bench.execute import worker, workloads
from bench.execute.first_hour import write_jpegs
from bench.execute.jobs import speed, train
from bench.execute.workloads import Subject
from bench.plan import calibrate, preflight
from bench.store.records import read_record
from bench.store.study import Study
from bench.tasks import fewshot
from bench.train import precision
from bench.train.batches import Batches
from bench.train.trainer import Trainer
from tests.gpu import posing as posing_module
from tests.gpu.posing import NAME, Apple, posing, recording
from tests.train.driving import job_context

pytestmark = pytest.mark.gate


@pytest.fixture
def gpu():
    with posing():
        yield
    torch.set_num_threads(1)


def context(folder, cell, log=lambda _: None, *, device="cuda"):
    directory = Study(folder).cell(cell)
    directory.prepare(cell)
    return job_context(folder, directory=directory, attempt=directory.new_attempt(), device=device, log=log)


def test_a_study_runs_on_both_devices(gpu, tmp_path, capsys):
    """Planned, calibrated, trained by a worker on each device, evaluated, reported."""
    arguments = [
        "--suite",
        "smoke",
        "--device",
        "cuda",
        "--scale",
        "gpu",
        "--results",
        str(tmp_path),
        "--json",
        "--models",
        "ViT-pico/14,R8x0.125-s2",
        "--only",
        "*-100_s0",
        "--horizons",
        "512",
    ]
    assert run.main(arguments) == 0
    records = [read_record(path) for path in sorted(tmp_path.glob("smoke/cells/*/record.json"))]
    assert len(records) == 2
    for record in records:
        assert record.status == "complete" and record.environment.accelerator == NAME
        how = record.execution
        assert (how.device, how.accelerators, how.dtype, how.compile_mode) == ("cuda", 1, "bfloat16", "reduce-overhead")
        assert how.evaluation_dtype == "bfloat16"
        assert {score.task for row in record.horizons for score in row.scores} == {"upstream", "fewshot"}
        assert all(0 <= score.value <= 1 for row in record.horizons for score in row.scores)
        assert "data sheet" in record.cost.peak_source and "architecture's FLOPs" in record.cost.peak_source
    vit = next(record for record in records if record.model.family == "ViT")
    assert vit.execution.attention_kernels[-1] == "math"


def test_probes_are_solved_while_the_next_segment_trains(gpu, tmp_path, monkeypatch):
    """To the scores of a run that waits for them; on a processor, which has better to do, nothing is put aside."""
    options = (("shots", (1, 5)), ("draws", 2), ("test_limit", 100))
    cell = Cell(
        model="ViT-pico/14",
        data="fashion-mnist",
        num_images=64,
        horizons=(0, 32, 64),
        recipe=Recipe(batch=16, warmup_images=0),
        tasks=tuple(TaskSpec(task="fewshot", data=name, options=options) for name in ("digits", "glyphs")),
    )
    stepped, solved, threads = threading.Event(), fewshot.score_features, []
    step = Trainer.step

    def solve(*given, **more):
        threads.append(threading.current_thread().name.partition("_")[0])
        assert threads[-1] != "probes" or stepped.wait(600)  # the first waits until a step has been trained
        return solved(*given, **more)

    monkeypatch.setattr(fewshot, "score_features", solve)
    monkeypatch.setattr(Trainer, "step", lambda self, *given: (step(self, *given), stepped.set())[0])
    rows = train.run(cell, context(tmp_path / "beside", cell)).horizons
    assert threads == ["probes"] * 6 and [len(row.scores) for row in rows] == [17] * 3
    monkeypatch.setattr(train.TrainJob, "probes_in_background", False)
    wanted = train.run(cell, context(tmp_path / "after", cell)).horizons
    assert threads[6:] == ["MainThread"] * 6
    assert [row.scores for row in rows] == [row.scores for row in wanted]
    monkeypatch.undo()
    assert not train.TrainJob(cell, context(tmp_path / "cpu", cell, device="cpu")).probes_in_background


def test_probe(gpu, tmp_path, capsys, monkeypatch):
    """The second device is probed: streams and graphs, which ask for none by its number, get it too."""
    chosen: list[str] = []
    monkeypatch.setattr(torch.cuda, "set_device", chosen.append)
    torch.backends.cuda.matmul.allow_tf32 = True
    arguments = ["--model", "ViT-pico/14", "--data", "digits", "--device", "cuda:1"]
    arguments += ["--image-size", "14", "--channels", "1", "--shots", "1", "--draws", "1"]
    assert probe.main(arguments) == 0
    assert "digits" in capsys.readouterr().out and chosen == ["cuda:1"]
    assert not torch.backends.cuda.matmul.allow_tf32


def test_speed(gpu, tmp_path, monkeypatch):
    quick = timing.Pace(windows=2, seconds=0.01, slowest_call=0.02, latency_calls=3)
    monkeypatch.setattr(timing, "Pace", lambda: quick)
    monkeypatch.setattr("bench.execute.workloads.Subject.largest_inference", lambda self, **_: 8)
    cell = Cell(model="ViT-pico/14", data="noise", image_size=28, channels=3, recipe=Recipe(batch=4), job="speed")
    said: list[str] = []
    result = speed.run(cell, context(tmp_path, cell, said.append))
    measured = result.speed
    assert result.status == "complete" and not [line for line in said if "not compiled" in line]
    assert measured.compiled.images_per_second.n == measured.training.images_per_second.n == 2
    assert measured.largest_batch.found_inference == 8 and measured.largest_batch.device_bytes
    assert measured.memory.training_peak_bytes and measured.conditions.device == NAME


def test_speed_of_an_apple_gpu_is_not_its_processors(tmp_path, monkeypatch):
    """Which has the same name; figures compare speeds of one device."""
    monkeypatch.setattr(environment, "cpu_model", lambda: "Apple M3")
    monkeypatch.setattr(
        peaks, "peak", lambda *_, **__: peaks.PeakRate(flops_per_second=1e12, source="", measured=False)
    )
    cell = Cell(model="ViT-pico/14", data="noise", image_size=28, channels=3, recipe=Recipe(batch=4), job="speed")
    with posing(Apple):
        result = speed.run(cell, context(tmp_path / "mps", cell, device="mps"))
    assert result.status == "complete" and result.execution.device == "mps"
    assert result.speed.training.images_per_second.median > 0
    processor = speed.SpeedJob(cell, context(tmp_path / "cpu", cell, device="cpu"))
    assert (result.speed.conditions.device, processor.conditions().device) == ("Apple M3 GPU", "Apple M3")


def test_the_peak_of_a_step_is_that_of_one_that_allocates(gpu, tmp_path, monkeypatch):
    """A replayed graph allocates nothing: what it needs was taken when it was recorded."""
    happened: list[str] = []

    @contextlib.contextmanager
    def noted(graph, **_):
        happened.append("recorded")
        with recording(graph):
            yield

    monkeypatch.setattr(torch.cuda, "graph", noted)
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda _: happened.append("reset"))
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda _: happened.append("read") or 1)
    cell = Cell(model="ViT-pico/14", data="noise", image_size=28, channels=3, recipe=Recipe(batch=4), job="speed")
    job = speed.SpeedJob(cell, context(tmp_path, cell))
    model = job.subject.build()
    workloads = [job.subject.inference(model, 2), job.subject.largest_training(4, pace=timing.Pace(seconds=0.01))]
    assert set(happened) == {"recorded"}  # the passes, and the update
    happened.clear()
    job._memory(model, *workloads)
    assert happened == ["reset", "read", "reset", "recorded", "read"]


@pytest.mark.parametrize("device_name", ["cuda", "cuda:1"])
def test_timing_and_memory_are_of_the_device_that_was_asked_for(device_name, gpu, monkeypatch):
    """Waiting for another one would time the launches."""
    asked: list[str] = []
    for name, answer in (
        ("synchronize", None),
        ("max_memory_allocated", 1),
        ("reset_peak_memory_stats", None),
        ("get_device_name", "unknown"),
        ("mem_get_info", (1, 1)),
    ):
        monkeypatch.setattr(torch.cuda, name, lambda at=None, answer=answer: asked.append(str(at)) or answer)
    device.timed(lambda: None, device=device_name)
    memory.reset_peak(device_name)
    memory.measured_peak_bytes(device_name)
    device.free_memory(device_name)
    peaks.measured_peak.cache_clear()
    monkeypatch.setattr(peaks, "PRECOMPUTED", {})
    monkeypatch.setattr(torch, "matmul", lambda *_: None)
    monkeypatch.setattr(torch, "randn", lambda *_, **__: torch.zeros(1))
    peaks.measured_peak("bfloat16", 1, device_name, seconds=0.0)
    peaks.measured_peak.cache_clear()
    assert len(asked) > 8 and set(asked) == {device_name}, asked


def test_float32_is_float32_wherever_it_is_computed(monkeypatch, tmp_path):
    """Torch rounds convolutions to TF32 by default, and products not."""
    flags = ((torch.backends.cudnn, "allow_tf32"), (torch.backends.cuda.matmul, "allow_tf32"))

    def rounded():
        return [getattr(owner, name) for owner, name in flags]

    threads = torch.get_num_threads()
    cell = Cell(model="ViT-pico/14", data="noise", image_size=28, job="speed")

    def set_up_by(work):
        for owner, name in flags:
            setattr(owner, name, True)
        with contextlib.suppress(Enough):
            work()
        torch.set_num_threads(threads)
        return rounded() == [False, False]

    def enough(*_, **__):
        raise Enough

    monkeypatch.setattr(speed, "SpeedJob", enough)
    monkeypatch.setattr(train, "TrainJob", enough)
    monkeypatch.setattr("sys.stdin", io.StringIO("{}"))
    assert set_up_by(lambda: precision.set_up(threads=threads))
    assert set_up_by(lambda: speed.run(cell, context(tmp_path, cell, device="cpu")))
    assert set_up_by(lambda: train.run(cell, context(tmp_path, cell, device="cpu")))
    assert set_up_by(lambda: calibrate.main(["--threads", str(threads)]))
    assert not set_up_by(lambda: None)
    precision.set_up(threads=threads)


class Enough(Exception):
    pass


def test_a_scan_over_batch_sizes_keeps_one_set_of_images(gpu, monkeypatch):
    """The largest, of which the others are a part: at 512 pixels all sizes together would be 25 GB."""
    made: list[weakref.ref] = []
    real = Subject.images

    def noted(self, batch):
        images = real(self, batch)
        made.append(weakref.ref(images.untyped_storage()))
        return images

    monkeypatch.setattr(Subject, "images", noted)
    subject = Subject(model="ViT-pico/14", image_size=28, channels=3, device="cuda", dtype="float32")
    make = functools.partial(subject.inference, subject.build(), kept=[])
    pace = timing.Pace(windows=1, seconds=0.001, slowest_call=10.0)
    workloads, _ = timing.scan_batches(make, device="cuda", pace=pace, largest=8, should_stop=lambda: False)
    gc.collect()
    assert [workload.images for workload in workloads] == [1, 2, 4, 8] and len(made) == 4
    assert [ref() is not None for ref in made] == [False, False, False, True]


def test_images_of_a_large_batch_repeat_and_are_drawn_once():
    """To draw all of a search for the largest batch took minutes, in which the device waited."""
    subject = Subject(model="ViT-pico/14", image_size=28, channels=3, device="cpu", dtype="float32")
    drawn, rand = [], torch.rand
    with mock.patch.object(torch, "rand", lambda shape, **how: (drawn.append(shape[0]), rand(shape, **how))[1]):
        x_BCHW = subject.images(1000)
    assert drawn == [workloads.DRAWN] and len(x_BCHW) == 1000
    assert len(x_BCHW[: workloads.DRAWN].flatten(1).unique(dim=0)) == workloads.DRAWN
    assert torch.equal(x_BCHW[-1], x_BCHW[999 % workloads.DRAWN])


def test_generated_kernels_are_kept_in_this_users_own_cache(gpu, tmp_path, monkeypatch):
    """The next process finds the same ones: autotuned kernels differ otherwise. Those of a study's folder, which may be
    somebody else's, are never run."""
    from torch._inductor.runtime.cache_dir_utils import cache_dir, triton_cache_dir

    (tmp_path / "cells.json").write_text("[]")
    arguments = ["--store", str(tmp_path / "study"), "--cells", str(tmp_path / "cells.json"), "--suite", "smoke"]
    for name in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"):
        monkeypatch.setenv(name, "x")
        monkeypatch.delenv(name)
    monkeypatch.setenv("VIT_BENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    assert worker.main([*arguments, "--device", "cpu"]) == 0 and "TORCHINDUCTOR_CACHE_DIR" not in os.environ
    assert worker.main([*arguments, "--device", "cuda"]) == 0
    kept = cache.kernels()
    assert cache_dir() == str(kept) and triton_cache_dir(0).startswith(str(kept))
    assert kept.stat().st_mode & 0o777 == 0o700 and tmp_path / "study" not in kept.parents
    kept.chmod(0o777)
    with pytest.raises(UserError, match="holds code"):
        cache.kernels()


def test_every_worker_has_a_device_of_its_own(monkeypatch):
    monkeypatch.setattr(device.subprocess, "run", lambda *_, **__: dataclasses.make_dataclass("R", ["stdout"])(""))
    for name in device.VISIBLE_VARIABLES:
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


def test_parts_of_a_divided_gpu_are_devices_beside_whole_ones(monkeypatch):
    """But no ranks: NCCL refuses two of one GPU."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    whole = "GPU {}: NVIDIA H100 80GB HBM3 (UUID: GPU-{})\n"
    for listed, ids in (
        (PARTS, ("MIG-1", "MIG-2")),
        (whole.format(0, "a") + PARTS + whole.format(2, "b"), ("GPU-a", "MIG-1", "MIG-2", "GPU-b")),
    ):
        answer = dataclasses.make_dataclass("R", ["stdout"])(listed)
        monkeypatch.setattr(device.subprocess, "run", lambda *_, answer=answer, **__: answer)
        assert device.accelerators("cuda") == ids
    cell = Cell(model="ViT-pico/14", data="fashion-mnist", num_images=64, horizons=(64,))
    with pytest.raises(UserError, match="divided GPU"):
        preflight._check_ranks(2, "cuda", [cell])


def test_who_shares_a_gpu_counts_on_its_own_part_whoever_came_first(gpu, monkeypatch):
    fractions = []
    monkeypatch.setattr(torch.cuda, "set_per_process_memory_fraction", fractions.append)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda *_: (79 << 30, 80 << 30))  # it is the first
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda *_: 1 << 30)
    monkeypatch.setattr(device, "_limits", {})
    device.share_memory("cuda", 1)
    assert device.free_memory("cuda") == 79 << 30 and not fractions
    device.share_memory("cuda", 4)
    assert device.free_memory("cuda") == (18 << 30) - (1 << 30) and fractions == [0.9 / 4]


def test_launching_is_timed_without_waiting_for_the_device(monkeypatch):
    held: list[int] = []
    with posing():
        monkeypatch.setattr(torch.cuda, "_sleep", held.append)
        launching, computing = calibrate.launched(lambda: time.sleep(0.01), device="cuda")
    assert launching >= 0.01 and computing >= 0.01 and held == [calibrate.HELD_CYCLES] * calibrate.HELD_STEPS
    slow = iter([0.01, 0.2] * calibrate.HELD_STEPS)  # its queue is full while it is held
    with posing():
        assert 0.01 <= calibrate.launched(lambda: time.sleep(next(slow)), device="cuda")[0] < 0.2


def test_small_networks_gain_most_by_being_compiled():
    """They wait for being launched; one that is computed for longer is as fast whether its step is recorded or not."""
    small, large = (0.012, 0.001), (0.012, 0.060)
    seconds = [calibrate.compiled_seconds(*parts, recorded=how) for parts in (small, large) for how in (True, False)]
    assert seconds == [0.001, 0.006, 0.039, 0.039]


def test_jpegs_are_decoded_into_memory_that_nobody_reads_any_more(gpu, monkeypatch, tmp_path):
    """The decoder writes without waiting for the stream on which the batch before is cut: so the stream is drained."""
    happened = []
    write_jpegs(tmp_path / "made", number=8)
    encoded = load("folder:made:32px:stream", "train", root=tmp_path)
    decode = torchvision.io.decode_jpeg

    def noted(files, *, mode, device):
        happened.append("decode")
        return decode(files, mode=mode)

    monkeypatch.setattr(torchvision.io, "decode_jpeg", noted)
    monkeypatch.setattr(posing_module.Stream, "synchronize", lambda _: happened.append("drained"))
    interpolate = torch.nn.functional.interpolate
    monkeypatch.setattr(
        torch.nn.functional, "interpolate", lambda *x, **y: (happened.append("cut"), interpolate(*x, **y))[1]
    )
    made = Batches(encoded, recipe=Recipe(batch=4, decoding="device"), seed=0, device="cuda", tier="streamed")
    happened.clear()
    for step in range(3):
        made(step)
    made.reader.close()
    decodings = [at for at, what in enumerate(happened) if what == "decode"]
    assert len(decodings) == 4 and "cut" in happened  # the next batch is decoded meanwhile
    assert all(happened[at - 1] == "drained" for at in decodings)
