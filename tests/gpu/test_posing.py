"""Every command on a CPU that poses as two GPUs: plans, workers, training, evaluation, timing, races."""

import contextlib
import functools
import gc
import io
import os
import signal
import threading
import weakref
from types import SimpleNamespace
from unittest import mock

import pytest
import torch

from bench import run
from bench.commands import probe
from bench.core import device, environment
from bench.core.errors import UserError
from bench.core.subprocesses import child_environment
from bench.cost import memory, peaks, timing
from bench.data import cache
from bench.execute import worker
from bench.execute.jobs import speed, train
from bench.execute.workloads import Subject
from bench.plan import calibrate, preflight
from bench.store.records import read_record
from bench.store.study import Study
from bench.study.cell import Cell, Recipe, TaskSpec
from bench.tasks import fewshot
from bench.train import precision
from bench.train.trainer import Trainer
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


def test_speed(gpu, tmp_path, monkeypatch):
    """The peak of a step is that of one that allocates: a replayed graph does not, so it is recorded again."""
    happened: list[str] = []
    monkeypatch.setattr(torch.cuda, "graph", lambda graph, **_: (happened.append("recorded"), recording(graph))[1])
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda _: happened.append("reset"))
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda _: happened.append("read") or 1)
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
    at = happened.index("reset", happened.index("recorded"))
    assert happened[at : at + 5] == ["reset", "read", "reset", "recorded", "read"]


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


def test_timing_and_memory_are_of_the_device_that_was_asked_for(gpu, monkeypatch):
    """Waiting for another one would time the launches."""
    device_name, asked = "cuda:1", []
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


def test_float32_is_float32_wherever_it_is_computed(gpu, monkeypatch, tmp_path, capsys):
    """Torch rounds convolutions to TF32 by default, and products not. A probe of the second device is done there:
    streams and graphs, which ask for none by its number, get it too."""
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = True
    precision.set_up(threads=1)
    assert not torch.backends.cudnn.allow_tf32 and not torch.backends.cuda.matmul.allow_tf32
    cell = Cell(model="ViT-pico/14", data="noise", image_size=28, job="speed")
    set_up = mock.Mock()
    monkeypatch.setattr(precision, "set_up", set_up)
    monkeypatch.setattr(torch.cuda, "set_device", set_up.device)
    for job in (speed.SpeedJob, train.TrainJob):
        monkeypatch.setattr(job, "__init__", mock.Mock(side_effect=NotImplementedError))
    for run_job in (speed.run, train.run):
        with pytest.raises(NotImplementedError):
            run_job(cell, context(tmp_path, cell, device="cpu"))
    monkeypatch.setattr("sys.stdin", io.StringIO("{}"))
    calibrate.main(["--threads", "1"])
    arguments = ["--model", "ViT-pico/14", "--data", "digits", "--device", "cuda:1"]
    arguments += ["--image-size", "14", "--channels", "1", "--shots", "1", "--draws", "1"]
    assert probe.main(arguments) == 0 and "digits" in capsys.readouterr().out
    assert set_up.call_count == 4 and set_up.device.call_args_list == [mock.call("cuda:1")]


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


def test_generated_kernels_are_kept_in_this_users_own_cache(gpu, tmp_path, monkeypatch):
    """The next process finds the same ones: autotuned kernels differ otherwise. Those of a study's folder, which may be
    somebody else's, are never run; and a network's folder may have no locks, which torch takes there."""
    from torch._inductor.runtime.cache_dir_utils import cache_dir, triton_cache_dir

    (tmp_path / "cells.json").write_text("[]")
    arguments = ["--store", str(tmp_path / "study"), "--cells", str(tmp_path / "cells.json"), "--suite", "smoke"]
    for name in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"):
        monkeypatch.setenv(name, "x")
        monkeypatch.delenv(name)
    monkeypatch.setenv("VIT_BENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    for locks, where in ((True, "cpu"), (False, "cuda"), (True, "cuda")):
        monkeypatch.setattr(worker.files, "has_locks", lambda folder, locks=locks: locks and folder == cache.kernels())
        assert worker.main([*arguments, "--device", where]) == 0
        assert ("TORCHINDUCTOR_CACHE_DIR" in os.environ) == (locks and where == "cuda")
    kept = cache.kernels()
    assert cache_dir() == str(kept) and triton_cache_dir(0).startswith(str(kept))
    assert kept.stat().st_mode & 0o777 == 0o700 and tmp_path / "study" not in kept.parents
    kept.chmod(0o777)
    with pytest.raises(UserError, match="holds code"):
        cache.kernels()


GPU = "GPU {}: NVIDIA H100 80GB HBM3 (UUID: GPU-{})\n"
DIVIDED = GPU.format(0, "c") + "".join(f"  MIG 3g.40gb     Device  {n - 1}: (UUID: MIG-{n})\n" for n in (1, 2))


@pytest.mark.parametrize(
    "listed, ids",
    [
        ("", ("0", "1")),
        (DIVIDED, ("MIG-1", "MIG-2")),
        (GPU.format(0, "a") + DIVIDED + GPU.format(2, "b"), ("GPU-a", "MIG-1", "MIG-2", "GPU-b")),
    ],
    ids=["whole", "divided", "both"],
)
def test_every_worker_has_a_device_of_its_own(listed, ids, gpu, monkeypatch):
    """Parts of a divided GPU are devices beside whole ones, but no ranks: NCCL refuses two of one GPU."""
    monkeypatch.setattr(device.subprocess, "run", lambda *_, **__: SimpleNamespace(stdout=listed))
    for name in device.VISIBLE_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    assert device.accelerators("cuda") == ids and device.accelerators("cpu") == ()
    cell = Cell(model="ViT-pico/14", data="fashion-mnist", num_images=64, horizons=(64,))
    with pytest.raises(UserError, match="divided GPU") if listed else contextlib.nullcontext():
        preflight._check_ranks(2, "cuda", [cell])
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3, 5,7")
    assert device.accelerators("cuda") == (three := ("3", "5", "7"))
    assert [device.place(three, worker) for worker in range(4)] == [("3",), ("5",), ("7",), ("3",)]
    assert device.place(("0", "1", "2", "3"), 1, ranks=2) == ("2", "3") and device.place((), 5) == ()
    variables = child_environment(1, devices=("5",))  # as NVML numbers them, which counts joules
    assert (variables["CUDA_VISIBLE_DEVICES"], variables["CUDA_DEVICE_ORDER"]) == ("5", "PCI_BUS_ID")


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


def test_launching_is_timed_without_waiting_for_the_device(gpu, monkeypatch):
    """Nor for room in its queue, which may be full where it is held up."""
    now, held = [0.0], []
    monkeypatch.setattr(calibrate.time, "perf_counter", lambda: now[0])
    monkeypatch.setattr(torch.cuda, "_sleep", held.append)
    slow = iter([0.5, 2.0] * calibrate.HELD_STEPS)
    assert calibrate.launched(lambda: now.append(now.pop() + next(slow)), device="cuda") == (0.5, 0.5)
    assert held == [calibrate.HELD_CYCLES] * calibrate.HELD_STEPS


def test_small_networks_gain_most_by_being_compiled():
    """They wait for being launched; one that is computed for longer is as fast whether its step is recorded or not."""
    small, large = (0.012, 0.001), (0.012, 0.060)
    seconds = [calibrate.compiled_seconds(*parts, recorded=how) for parts in (small, large) for how in (True, False)]
    assert seconds == [0.001, 0.006, 0.039, 0.039]
