"""How speed is measured, on workloads whose speed is known; the speed job on a tiny model, its figure, traces."""

import contextlib
import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
import torch

from bench.analysis import evidence
from bench.analysis.study_data import Records
from bench.core import device
from bench.core.device import OutOfMemory, is_out_of_memory, timed
from bench.core.errors import Interrupted, UserError
from bench.cost import profiler, trace
from bench.cost import timing as speed
from bench.cost.timing import CPU_PACE, Pace, Workload, spread
from bench.cost.trace import ACTIVE, LABELS
from bench.execute import workloads
from bench.execute.jobs import speed as job
from bench.execute.jobs.job import JobContext
from bench.execute.workloads import Subject
from bench.report.figures import throughput
from bench.report.figures.figure import render
from bench.study import registry
from bench.study.cell import Cell, Recipe, cell_id, to_json
from bench.study.record import (
    Conditions,
    Environment,
    Execution,
    LargestBatch,
    Latency,
    ModelFacts,
    Record,
    Reference,
    SpeedResult,
    Spread,
    Throughput,
)
from bench.study.registry import revisions_of
from bench.study.suite import SuiteOptions
from bench.suites import speed as suite
from tests.analysis._records import blank
from tests.train.driving import Tight, job_context

# -- how speed is measured, on workloads whose speed is known, and the speed job on a tiny model -----------------------


QUICK = Pace(windows=3, seconds=0.01, slowest_call=0.02, latency_calls=5)


def sleeper(name: str, seconds: float, images: int = 1, log: list[str] | None = None) -> Workload:
    def call() -> None:
        time.sleep(seconds)
        if log is not None:
            log.append(name)

    return Workload(name=name, call=call, images=images)


@pytest.fixture
def quiet(monkeypatch) -> None:
    """A machine on which nothing but sleep takes time."""
    now = [0.0]
    monkeypatch.setattr(device, "time", SimpleNamespace(perf_counter=lambda: now[0]))
    monkeypatch.setattr(time, "sleep", lambda seconds: now.append(now.pop() + seconds))


def test_windows_take_turns() -> None:
    log: list[str] = []
    workloads = [sleeper(name, 0.0, log=log) for name in "abc"]
    speed.interleave(workloads, device="cpu", windows=3)
    assert "".join(log) == "abc" + "cba" + "abc"
    assert all(len(workload.windows) == 3 for workload in workloads)


@pytest.mark.parametrize(
    "slow_start, seconds, per_window", [([0.05], 0.001, 10), ([60.0, 5.0, 1.0], 0.001, 10), ([180.0], 0.5, 1)]
)
def test_a_window_holds_many_calls_and_the_first_call_is_apart(quiet, slow_start, seconds, per_window) -> None:
    """Warming up ends when calls agree, however long compiling, recording and replaying take."""
    calls = iter(slow_start + [seconds] * 1000)
    workload = Workload(name="compiles", call=lambda: time.sleep(next(calls)), images=10)
    speed.warm_up(workload, device="cpu", pace=replace(QUICK, slowest_call=10.0))
    assert workload.first_call_seconds == pytest.approx(slow_start[0])
    assert workload.call_seconds == pytest.approx(seconds) and workload.calls_per_window == per_window
    speed.interleave([workload], device="cpu", windows=3)
    assert workload.windows == pytest.approx([10 / seconds] * 3)


def test_spread_of_windows() -> None:
    assert speed.spread([5.0, 1.0, 3.0, 2.0, 4.0]) == Spread(median=3.0, q1=2.0, q3=4.0, min=1.0, max=5.0, n=5)
    assert speed.spread([]).median is None
    assert speed.spread([2.0]).q1 == 2.0


def test_latency_percentiles_are_of_single_calls() -> None:
    latency = speed.latency(lambda: time.sleep(0.002), device="cpu", calls=5)
    assert latency["n"] == 5 and latency["p99_ms"] is None  # five calls have no 99th percentile
    assert 2.0 <= latency["min_ms"] <= latency["p50_ms"] <= latency["p90_ms"] <= latency["max_ms"]  # type: ignore[operator]


def full_above(limit: int):
    def make(batch: int) -> Workload:
        def call() -> None:
            if batch > limit:
                raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes.")

        return Workload(name=str(batch), call=call, images=batch)

    return make


def test_out_of_memory_ends_the_scan_and_is_said(quiet) -> None:
    workloads, why = speed.scan_batches(full_above(9), device="cpu", pace=QUICK, should_stop=lambda: False)
    assert [workload.images for workload in workloads] == [1, 2, 4, 8]
    assert why == "out of memory at batch 16"
    workloads, why = speed.scan_batches(full_above(0), device="cpu", pace=QUICK, should_stop=lambda: False)
    assert (workloads, why) == ([], "out of memory at batch 1")


def test_a_slow_batch_ends_the_scan(quiet) -> None:
    def make(batch: int) -> Workload:
        return sleeper(str(batch), 0.004 * batch, images=batch)

    workloads, why = speed.scan_batches(make, device="cpu", pace=QUICK, should_stop=lambda: False)
    assert [workload.images for workload in workloads] == [1, 2, 4] and "more than 0.02 s" in why


def test_other_errors_are_not_taken_for_out_of_memory() -> None:
    def call() -> None:
        raise RuntimeError("shapes do not match")

    with pytest.raises(RuntimeError, match="shapes"):
        timed(call, device="cpu")
    assert is_out_of_memory(torch.OutOfMemoryError("x")) and is_out_of_memory(MemoryError())
    for status in ("CUBLAS_STATUS_ALLOC_FAILED", "CUBLAS_STATUS_NOT_INITIALIZED"):
        assert is_out_of_memory(RuntimeError(f"CUDA error: {status} when calling `cublasCreate(handle)`"))


def test_max_autotune_that_finds_no_room_for_any_kernel_is_out_of_memory() -> None:
    from torch._inductor.exc import InductorError
    from torch._inductor.select_algorithm import NoValidChoicesError

    assert is_out_of_memory(InductorError(NoValidChoicesError(), None))


@pytest.mark.parametrize("first, wanted", [(torch.OutOfMemoryError("x"), True), (ValueError("x"), False)])
def test_a_failure_to_tidy_up_after_a_lack_of_memory_is_one(first: Exception, wanted: bool) -> None:
    try:
        try:
            raise first
        finally:
            raise RuntimeError("operation failed due to a previous error during capture")
    except RuntimeError as error:
        assert is_out_of_memory(error) == wanted


@pytest.mark.parametrize("limit", [0, 1, 2, 37, 100, 1000])
@pytest.mark.parametrize("start", [1, 64, 5000])
def test_search_for_the_largest_batch(limit: int, start: int) -> None:
    tried: list[int] = []

    def fits(batch: int) -> bool:
        tried.append(batch)
        return batch <= limit

    found = speed.search_largest(fits, start=start)
    assert found <= limit and limit - found <= max(1, 0.03 * limit)
    assert len(tried) < 30


# -- the job and the suite -------------------------------------------------------------------------------------------


def context(folder: Path, *, stop: bool = False, profile: bool = False) -> JobContext:
    return job_context(folder, should_stop=lambda: stop, profile=profile)


def cell(model: str = "ViT-pico/14", size: int = 28) -> Cell:
    return Cell(model=model, data="noise", image_size=size, channels=3, recipe=Recipe(batch=4), job="speed")


@pytest.fixture(autouse=True)
def _restore_threads():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speed, "CPU_PACE", QUICK)


def test_job_measures_everything(tmp_path: Path, quick: None) -> None:
    result = job.run(cell(), context(tmp_path))
    json.dumps(to_json(result), allow_nan=False)
    measured = result.speed
    assert result.status == "complete" and result.horizons == () and measured is not None
    assert measured.inference.images_per_second.n == QUICK.windows
    rates = [entry.images_per_second.median for entry in measured.batches]
    assert measured.inference.images_per_second.median == max(rate for rate in rates if rate is not None)
    assert measured.inference.limit and measured.compiled is None
    assert measured.training.images_per_second.n == QUICK.windows
    assert measured.latency.batch == 1 and measured.reference.model == "ViT-nano/7"
    largest = measured.largest_batch
    assert largest.inference > largest.training > 0 and largest.found_inference is None
    assert measured.conditions.device and measured.conditions.windows == QUICK.windows
    assert result.execution.threads == 1 and result.execution.dtype
    assert measured.inference.utilisation > 0
    assert result.cost.peak_source.startswith("measured")
    assert result.cost.seconds.total > 0


def test_a_model_that_does_not_fit_is_a_result(tmp_path: Path, quick: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*args: Any, **options: Any) -> tuple[list[Workload], str]:
        return [], "out of memory at batch 1"

    monkeypatch.setattr(speed, "scan_batches", none)
    result = job.run(cell(), context(tmp_path))
    assert result.status == "oom" and "does not fit" in result.reason
    assert result.speed.conditions.device and result.speed.inference is None


def test_training_that_does_not_fit_leaves_inference(
    tmp_path: Path, quick: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    from bench.execute.workloads import Subject

    monkeypatch.setattr(Subject, "training", lambda self, model, batch: full_above(1)(max(2, batch)))
    result = job.run(cell(), context(tmp_path))
    assert result.status == "complete" and result.speed.training is None


def test_a_signal_stops_it(tmp_path: Path, quick: None) -> None:
    with pytest.raises((Interrupted, OutOfMemory)):
        job.run(cell(), context(tmp_path, stop=True))


def test_impossible_sizes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="28"):
        job.run(cell(size=29), context(tmp_path))


@pytest.mark.parametrize("scale", ["cpu", "gpu", "paper"])
def test_every_cell_of_the_suite_can_be_built(scale: str) -> None:
    cells = suite.cells(SuiteOptions(scale=scale))
    assert len({c.model for c in cells}) >= 4 and len({c.image_size for c in cells}) >= 3
    assert len({cell_id(c, revisions_of(c)) for c in cells}) == len(cells)
    for c in {(c.model, c.image_size) for c in cells}:
        with torch.device("meta"):
            registry.build_model(c[0], image_size=c[1], channels=3, num_classes=1000)


def test_a_newer_revision_of_a_job_makes_other_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    """Records of the first revision keep their names: it is no part of them."""
    measured = cell()
    trained = replace(measured, job="train")
    before = [cell_id(c, revisions_of(c)) for c in (measured, trained)]
    assert not any(name.startswith("job") for name in revisions_of(measured))
    newer = replace(job.JOB, revision=2)
    load = registry.load
    monkeypatch.setattr(registry, "load", lambda kind, name: newer if kind == "job" else load(kind, name))
    after = [cell_id(c, revisions_of(c)) for c in (measured, trained)]
    assert revisions_of(measured)["job:speed"] == 2
    assert after[0] != before[0] and after[1] == before[1]


def test_rounds_visit_every_model_before_any_comes_again() -> None:
    cells = suite.cells(SuiteOptions(scale="cpu", seeds=3))
    third = len(cells) // 3
    keys = [(c.model, c.image_size) for c in cells]
    assert keys[:third] == keys[third : 2 * third] == keys[2 * third :]
    assert [c.seed for c in cells] == sorted(c.seed for c in cells)


def test_suite_fits_its_time(tmp_path: Path) -> None:
    """Windows have a fixed length: the sum over cells, on two workers, stays below four minutes."""
    cells = suite.cells(SuiteOptions(scale="cpu"))
    assert len(cells) * job.expected_seconds(cells[0]) / 2 < 240
    assert CPU_PACE.windows >= 5


def test_the_largest_batch_of_training_is_one_that_is_not_done_in_parts(monkeypatch) -> None:
    from bench.execute.workloads import Subject

    network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(4, 1000))
    monkeypatch.setattr(Subject, "build", lambda self: Tight(network, 5))
    subject = Subject(model="tight", image_size=2, channels=1, device="cpu", dtype="float32")
    largest = subject.largest_training(32, pace=Pace(windows=1, seconds=0.0))
    assert largest is not None and largest.images == 4


# -- the figure of the speed suite, from made-up records ---------------------------------------------------------------


def throughput_of(batch: int, rates: list[float], **more: Any) -> Throughput:
    return Throughput(batch=batch, images_per_second=spread(rates), windows=tuple(rates), calls_per_window=1, **more)


def record(
    model: str, family: str, size: int, rates: list[float] | None, *, found: int | None = None, seed: int = 0
) -> Record:
    conditions = Conditions(
        device="cpu X",
        float32_matmul_precision="highest",
        allow_tf32=False,
        windows=3,
        cudnn_benchmark=False,
        window_seconds=0.1,
        slowest_call_seconds=1.0,
    )
    speed = SpeedResult(revision=1, conditions=conditions)
    if rates:
        speed = replace(
            speed,
            inference=throughput_of(8, rates, utilisation=0.4),
            latency=Latency(batch=1, p50_ms=3.0, p90_ms=3.5, p99_ms=None, min_ms=2.0, max_ms=4.0, n=20),
            reference=Reference(
                model="ViT-nano/7",
                image_size=28,
                channels=1,
                num_classes=10,
                throughput=throughput_of(64, [100.0 + size]),
            ),
            largest_batch=LargestBatch(
                inference=5000, training=100, budget_bytes=16 * 2**30, how="from shapes", found_inference=found
            ),
        )
    return blank(
        Cell(model=model, image_size=size, data="noise", seed=seed, job="speed"),
        directory=f"{model}-{size}-{seed}",
        status="complete" if rates else "oom",
        speed=speed,
        model=ModelFacts(name=model, family=family, params=10),
        execution=Execution(device="cpu", threads=2, dtype="float32"),
        environment=Environment(torch="2", commit="c"),
    )


def draw(*records: Record) -> Any:
    return throughput.draw(evidence.build(Records(suite="speed", records=records)))


def test_points_are_medians_per_core_with_extremes() -> None:
    drawing = draw(
        record("ViT-A/1", "ViT", 64, [10.0, 20.0, 60.0]),
        record("ViT-A/1", "ViT", 64, [30.0, 40.0, 50.0], seed=1),
        record("ViT-A/1", "ViT", 128, [4.0]),
        record("R1x1", "ResNet", 64, [8.0], found=77),
    )
    rows = drawing.data.set_index(["model", "image_size"])
    vit = rows.loc[("ViT-A/1", 64)]
    assert vit["images_per_second"] == (20 + 40) / 2 / 2  # median over rounds, two threads
    assert (vit["min"], vit["max"], vit["rounds"], vit["windows"]) == (5.0, 30.0, 2, 6)
    assert vit["largest_batch"] == 5000 and not vit["largest_batch_is_found"]
    assert rows.loc[("R1x1", 64)]["largest_batch"] == 77
    assert render("throughput", throughput.TITLE, drawing) == render("throughput", throughput.TITLE, drawing)


def test_out_of_memory_is_in_caption_and_table_not_in_the_panel() -> None:
    drawing = draw(record("ViT-A/1", "ViT", 64, [10.0]), record("ViT-H/1", "ViT", 64, None))
    assert "Out of memory at batch 1: ViT-H/1 at 64 px" in drawing.caption
    assert len(drawing.figure.axes[0].lines) == 1
    lacking = drawing.data.set_index("model").loc["ViT-H/1"]
    assert lacking["status"] == "out of memory" and lacking["images_per_second"] != 0


def test_predicted_and_found_batches_look_different() -> None:
    """On an accelerator: the largest batch of a processor is not drawn."""
    here = (record("ViT-A/1", "ViT", 64, [10.0]), record("R1x1", "ResNet", 64, [8.0], found=77))
    assert len(draw(*here).figure.axes) == 1
    drawing = draw(*(replace(r, execution=replace(r.execution, device="cuda")) for r in here))
    hollow = [bool((c.get_facecolor() == 1).all()) for c in drawing.figure.axes[1].collections]
    assert sorted(hollow) == [False, True]


# -- traces: read back by the plug-in they are for ---------------------------------------------------------------------


READER = Path(__file__).with_name("read_trace.py")


def read_back(folder: Path, *, steps: int) -> dict[str, Any]:
    pytest.importorskip("torch_tb_profiler", reason="TensorBoard's profiler plug-in is not installed")
    root = str(READER.parent.parent.parent)
    result = subprocess.run(
        [sys.executable, str(READER), str(folder), str(steps)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": root, "OMP_NUM_THREADS": "1"},
    )
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout.splitlines()[-1])


@pytest.mark.gate
def test_the_plugin_reads_it_and_finds_every_label(tmp_path: Path) -> None:
    shown = read_back(tmp_path / "trace", steps=8)
    assert shown["workers"] == ["worker0"]
    assert {"overall", "operator", "trace", "memory"} <= {view.lower() for view in shown["views"]}
    assert "aten::addmm" in shown["operators"]
    assert set(LABELS) <= set(shown["labels"])
    assert sum(name.startswith("ProfilerStep#") for name in shown["labels"]) == ACTIVE
    assert "host_name" not in shown["keys"] and "traceName" not in shown["keys"]


def labels_in(folder: Path) -> set[str]:
    (path,) = folder.glob("*.pt.trace.json")
    events = json.loads(path.read_text())["traceEvents"]
    return {event["name"] for event in events if event.get("cat") == "user_annotation"}


def test_a_short_run_leaves_what_it_has(tmp_path: Path) -> None:
    with profiler.profile(tmp_path / "trace") as recording:
        for _ in range(3):
            with trace.label("forward"):
                torch.ones(2) + 1
            recording.step()
    assert "forward" in labels_in(tmp_path / "trace")


def test_speed_job_leaves_a_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speed, "CPU_PACE", QUICK)
    job.run(cell(), context(tmp_path, profile=True))
    assert set(LABELS) <= labels_in(tmp_path / "trace")


def test_labels_are_known_and_cost_nothing_while_nothing_is_recorded() -> None:
    assert isinstance(trace.label("forward"), contextlib.nullcontext)
    with pytest.raises(ValueError, match="optimizer"):
        trace.label("optimiser")


def test_images_of_a_large_batch_repeat_and_are_drawn_once():
    """To draw all of a search for the largest batch took minutes, in which the device waited."""
    subject = Subject(model="ViT-pico/14", image_size=28, channels=3, device="cpu", dtype="float32")
    drawn, rand = [], torch.rand
    with mock.patch.object(torch, "rand", lambda shape, **how: (drawn.append(shape[0]), rand(shape, **how))[1]):
        x_BCHW = subject.images(1000)
    assert drawn == [workloads.DRAWN] and len(x_BCHW) == 1000
    assert len(x_BCHW[: workloads.DRAWN].flatten(1).unique(dim=0)) == workloads.DRAWN
    assert torch.equal(x_BCHW[-1], x_BCHW[999 % workloads.DRAWN])
