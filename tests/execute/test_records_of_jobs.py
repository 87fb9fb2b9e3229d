"""A real cell of every job leaves a record in which every field is written that analysis may read."""

import dataclasses
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from bench.analysis import evidence, study_data
from bench.cost import timing
from bench.execute.jobs import train
from bench.execute.worker import Worker, WorkerOptions
from bench.report import build as report
from bench.store.study import Study
from bench.study import registry
from bench.study.cell import Cell, Recipe, TaskSpec
from bench.study.record import Record
from tests.conftest import PROJECT
from tests.train.driving import job_context
from tools.race import contenders
from tools.race import job as race

TASK = TaskSpec(task="fewshot", data="digits", options=(("shots", (1,)), ("draws", 1), ("test_limit", 100)))
RECIPE = Recipe(batch=16, warmup_images=16)
CELLS = {
    "train": Cell(
        model="ViT-pico/14",
        data="fashion-mnist",
        num_images=64,
        horizons=(0, 32, 64),
        tasks=(TASK,),
        recipe=RECIPE,
        axes=("compute",),
    ),
    "speed": Cell(model="ViT-pico/14", data="noise", channels=3, recipe=Recipe(batch=4), job="speed"),
    "peers": Cell(
        model="ViT-pico/14",
        data="fashion-mnist",
        num_images=64,
        channels=3,
        job="peers",
        recipe=Recipe(batch=8, shift=0),
        model_options=(("gelu", "exact"),),
    ),
}

NEVER_HERE = {  # whole cells, run here and on a CPU
    "reason",
    "source",
    "environment.accelerator",
    "environment.cuda",
    "execution.sharding",
    "environment.commit",
    "environment.dirty",  # None outside a checkout
    "cost.energy",
    "cost.energy.accelerator_joules",
    "cost.energy.co2_grams_per_kwh",  # where the hardware tells
}
NOT_OF_THE_JOB = {
    "train": {
        "speed",
        "peers",
        "horizons[0].images_per_second",
        "horizons[0].flops_per_second",
        "horizons[0].utilisation",
        "horizons[0].final_train_loss",  # before the first step there is no rate and no loss
        "horizons[].scores[].shots",
        "horizons[].scores[].draw",  # of upstream accuracy
        "curve.horizons[]",  # on the trunk
    },
    "speed": {
        "curve",
        "peers",
        "data.revision",
        "data.num_images",
        "data.content_hash",
        "data.num_val",  # images are made up
        "cost.spent_images",
        "cost.spent_flops.dense",
        "cost.spent_flops.paper",  # nothing is trained
        "cost.image_wait_seconds",
        "execution.evaluation_dtype",
        "speed.compiled",
        "speed.conditions.cudnn",
        "speed.memory.inference_peak_bytes",
        "speed.memory.training_peak_bytes",
        "speed.largest_batch.found_inference",
        "speed.largest_batch.device_bytes",  # on a GPU only
        "speed.latency.p99_ms",  # of a hundred calls or more
        "cost.processor_seconds",
        *(
            f"speed.{place}.{name}"
            for place in ("inference", "batches[]", "training", "reference.throughput")
            for name in ("utilisation", "limit", "optimizer", "scan_images_per_second")
        ),
        *(f"speed.batches[].images_per_second.{name}" for name in ("median", "q1", "q3", "min", "max")),  # the slow
    },
    "peers": {
        "curve",
        "speed",
        "data.num_val",
        "cost.spent_images",
        "cost.spent_flops.dense",
        "cost.spent_flops.paper",
        "cost.image_wait_seconds",
        "cost.peak_memory_bytes",
        "cost.processor_seconds",  # of other processes
        "execution.evaluation_dtype",
        "peers.contenders[].package",
        "peers.contenders[].left_out",
        "peers.contenders[].trials[].reason",
        "peers.contenders[].trials[].over_best",  # of bfloat16, where the processor does not multiply it
    },
}


class NeverStopped:
    stopping = False

    def __call__(self) -> bool:
        return False


@pytest.fixture(scope="module", params=[*registry.names("job"), "peers"])
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Study, Record]]:
    """A study of one cell, run by a worker in this process, and its record."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(registry.PLUGINS, str(PROJECT / "tools" / "race"))
        registry.forget()
        quick = timing.Pace(windows=2, seconds=0.01, slowest_call=0.02, latency_calls=3)
        patch.setattr(timing, "CPU_PACE", quick)
        own = contenders.Competitor(name="own", package=None, tuned=True)
        patch.setattr(contenders, "contenders", lambda *_, **__: (own,))
        patch.setitem(race.STARTS, "cpu", 2)
        patch.setitem(race.ROUNDS, "cpu", 1)
        patch.setitem(race.WINDOW_SECONDS, "cpu", 0.01)
        study = Study(tmp_path_factory.mktemp(request.param) / request.param)
        study.create()
        cell = CELLS[request.param]
        threads = torch.get_num_threads()
        options = WorkerOptions(device="cpu")
        assert Worker(study, [cell], suite=request.param, options=options, stop=NeverStopped()).run() == 0
        torch.set_num_threads(threads)
        record = study.cell(cell).read_record()
        yield study, record
    registry.forget()


def missing(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Paths of what is None, with and without the numbers of rows."""
    if value is None:
        yield path, path
    elif dataclasses.is_dataclass(value) and not isinstance(value, type) and not isinstance(value, Cell):
        for entry in dataclasses.fields(value):
            yield from missing(getattr(value, entry.name), f"{path}.{entry.name}" if path else entry.name)
    elif isinstance(value, tuple):
        for number, item in enumerate(value):
            for exact, general in missing(item):
                end = f".{exact}" if exact else ""
                yield f"{path}[{number}]{end}", f"{path}[]{'.' + general if general else ''}"


def test_everything_is_written_but_what_does_not_apply(made) -> None:
    _, record = made
    allowed = NEVER_HERE | NOT_OF_THE_JOB[record.cell.job]
    assert not [exact for exact, general in missing(record) if exact not in allowed and general not in allowed]


def test_how_and_where_it_ran_is_written(made) -> None:
    """A mixture of records is told by these facts."""
    _, record = made
    how, where = record.execution, record.environment
    assert (how.device, how.accelerators, how.ranks, how.threads, how.dtype) == ("cpu", 0, 1, 1, "float32")
    assert how.compile_mode == "off" and where.cpu and where.torch and where.cores
    assert where.time_start == record.attempts[0].started < where.time_end
    assert record.status == record.attempts[-1].outcome == "complete"
    assert record.cost.devices == 1 and record.cost.seconds.total and record.cost.core_days
    assert record.cost.peak_flops_per_second and record.model.params and record.model.forward_macs.paper
    if record.cell.job == "train":
        assert how.attention_kernels == ("plain",) and record.curve.images[-1] == 64
        assert [h.images_seen for h in record.horizons] == [0, 32, 64]
        assert all(h.seconds.evaluate > 0 for h in record.horizons) and record.horizons[-1].seconds.train > 0
        assert sum(h.seconds.evaluate for h in record.horizons) <= record.cost.seconds.evaluate


def test_a_report_can_be_made_of_it(made) -> None:
    study, record = made
    paths = report.build(study.path, suite=record.suite)
    text = paths.markdown.read_text()
    assert record.environment.cpu in text and "float32" in text
    analysed = evidence.build(study_data.load(study.path))
    assert len(analysed.horizons) == len(record.horizons)


def test_early_stopping_records_the_accuracy_of_the_best_check(tmp_path, monkeypatch) -> None:
    checks: list[float] = []
    read = train.TrainJob.upstream_accuracy

    def noted(job: train.TrainJob) -> float:
        checks.append(read(job))
        return checks[-1]

    monkeypatch.setattr(train.TrainJob, "upstream_accuracy", noted)
    recipe = Recipe(batch=16, lr=3e-2, warmup_images=32, schedule="separate", stopping_checks=4)
    cell = Cell(model="ViT-pico/14", data="digits", horizons=(320,), recipe=recipe)
    (horizon,) = train.JOB.run(cell, job_context(tmp_path)).horizons
    (upstream,) = horizon.scores
    assert len(checks) == 4 and upstream.value == pytest.approx(max(checks))
