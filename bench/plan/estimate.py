"""Estimate the cost of a study from a few seconds of the real training step on this machine."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, fields
from typing import Any

from bench.core.device import accelerators, place
from bench.core.errors import UserError, at_a_limit
from bench.core.events import ProcessFailed, from_line
from bench.core.files import canonical
from bench.core.subprocesses import child_environment
from bench.cost import precomputed
from bench.plan.rate_cache import RateCache
from bench.plan.sizes import DataSizes, evaluation_images, solving_seconds
from bench.study import fingerprint, registry
from bench.study.cell import Cell, to_json
from bench.train.schedule import images_trained

Json = dict[str, Any]
MIN_PROCESSOR_SHARE = 0.7  # fraction of a processor below which other processes are taken to be using it
OPEN_DATA_SECONDS = 0.5  # seconds in which a cell opens its data
READ_TASK_SECONDS = 0.2  # seconds per task and horizon, besides passing its images through the network and solving
ACCELERATORS_PER_NODE = 8  # accelerators that are linked closely
NODE_BYTES_PER_SECOND = 300e9  # gradients between accelerators of a node; assumed, as are the next four
NETWORK_BYTES_PER_SECOND = 25e9  # gradients between nodes
CPU_BYTES_PER_SECOND = 1e9  # gradients between processes on CPUs
EXCHANGE_SECONDS = 3e-4  # seconds that an exchange of gradients takes besides the time for its bytes
EXCHANGE_SECONDS_CPU = 1e-3  # the same on CPUs
GRADIENT_BYTES = 4  # per parameter
# The fields of a recipe that change how long a step takes. The speed of a sweep over other fields is measured once.
STEP_FIELDS = (
    "batch",
    "micro_batch",
    "optimizer",
    "average",
    "clip",
    "loss",
    "shift",
    "flip",
    "crop",
    "augmentation",
    "decoding",
    "sharding",
    "dtype",
    "evaluation_dtype",
)


@dataclass(frozen=True, kw_only=True)
class Rates:
    """Throughput and cost of one model, for one worker of this machine while all workers are busy.

    Attributes:
        model: name of the model.
        train_images_per_second: throughput of training, of one worker.
        eval_images_per_second: throughput of evaluation, of one worker.
        train_flops_per_image: convention of counting ("dense" or "paper") -> FLOPs of a forward and backward pass.
        params: number of parameters of the model.
        measured: False where throughput rests on an assumed utilisation or gain of compiling, which `basis` states.
        basis: where the throughput comes from, in words.
        share: fraction of a processor that the measurement got.
        features: number of features per image that probes get.
        activation_bytes: bytes kept for the backward pass, per image in float32.
        error: one standard deviation of the logarithm of throughput; 0 where it was measured here.
        slowness: time for which tasks work on features here, divided by the time that they state.
        sees, group: fields `pixels` and `group` of `bench.cost.sight.Sight`: what limits how the model sees an image.
    """

    model: str
    train_images_per_second: float
    eval_images_per_second: float
    train_flops_per_image: dict[str, int]
    params: int
    measured: bool
    basis: str
    share: float = 1.0
    activation_bytes: int = 0
    features: int = 0
    error: float = 0.0
    slowness: float = 1.0
    sees: int | None = None
    group: int | None = None


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """Throughput and cost of every distinct model of a study.

    Attributes:
        rates: `rate_key` (identifies a model and how it is trained) -> throughput and cost.
        refused: `rate_key` -> why a model cannot be trained here, in words.
        precomputed: measurements that workers reuse (bench/cost/precomputed.py).
        age: seconds since the oldest of the measurements; None if all were made now.
    """

    rates: Mapping[str, Rates] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)
    precomputed: Json = field(default_factory=dict, repr=False)
    age: float | None = None


class Reporter:
    """Receives progress messages while a plan is made; this one ignores them."""

    def message(self, text: str) -> None:
        """Receive a line of text on what is being done."""

    def calibrated(self, done: int, total: int) -> None:
        """Receive how many models have been measured, `done`, and how many are to be measured in all, `total`."""


def rate_key(cell: Cell, classes: int) -> str:
    """Return a text that is equal for cells with equal throughput and cost. `classes`: number of classes of the
    upstream set."""
    model = [cell.model, to_json(cell.model_options), cell.image_size, cell.channels, classes]
    return canonical([*model, {name: getattr(cell.recipe, name) for name in STEP_FIELDS}])


def calibrate(
    cells: Sequence[Cell],
    sizes: DataSizes,
    *,
    device: str,
    threads: int,
    processes: int,
    anew: bool,
    report: Reporter,
    measure: bool = True,
    known: Mapping[str, Rates] | None = None,
) -> Calibration:
    """Return throughput and cost of every distinct model: from the cache of what was measured on this machine in the
    last hour, else measured in `processes` processes at once, as the study will run.

    If the images are not on this machine, throughput on a CPU is derived from FLOPs instead of measured.

    Args:
        threads: threads of each process.
        anew: whether to measure again what the cache has.
        report: receives messages on progress.
        measure: False counts FLOPs and parameters alone.
        known: `rate_key` -> throughput and cost that need not be found again.

    Raises:
        UserError: no model can be trained.
    """
    known = known or {}
    questions: dict[str, Json] = {}
    for cell in cells:
        if rate_key(cell, sizes[cell.data].classes) in known:
            continue
        size = sizes[cell.data]
        here = measure and (size.shape is not None or device != "cpu")
        question = {"cell": to_json(cell), "classes": size.classes, "measure": here}
        questions.setdefault(rate_key(cell, size.classes), question)
    if not questions:
        return Calibration(rates=known)
    cache = RateCache(device=device, threads=threads, processes=processes)
    names = {key: _cache_name(key, question) for key, question in questions.items()}
    kept = {} if anew else {key: found for key, name in names.items() if (found := cache.find(name)) is not None}
    answers = {key: answer for key, (answer, _) in kept.items()}
    if missing := {key: question for key, question in questions.items() if key not in kept}:
        report.message("Calibrating on this machine …" if measure else "Counting …")
        measured = _measure(missing, device=device, threads=threads, processes=processes, report=report)
        for key, answer in measured.items():
            if (
                "rates" in answer and answer["rates"].get("share", 1.0) >= MIN_PROCESSOR_SHARE
            ):  # a measurement on a busy machine is not kept, as it holds for this moment only
                cache.keep(names[key], answer)
        answers |= measured
    refused = {key: answers[key]["refused"] for key in questions if "refused" in answers[key]}
    trained = [cell for cell in cells if cell.horizons != (0,)] or cells
    if all(rate_key(cell, sizes[cell.data].classes) in refused for cell in trained):
        raise UserError("\n".join(dict.fromkeys(refused.values())))
    measured_keys = [key for key in questions if key not in refused]
    return Calibration(
        rates={**known, **{key: Rates(**answers[key]["rates"]) for key in measured_keys}},
        refused=refused,
        precomputed=precomputed.merge(answers[key]["precomputed"] for key in measured_keys),
        age=max((age for _, age in kept.values()), default=None),
    )


def _cache_name(key: str, question: Json) -> Json:
    """Return what identifies an answer in the cache, as JSON types: the question, the state of the model's code, and
    the names of the values that are asked for. `key`: the question's `rate_key`."""
    model = question["cell"]["model"]
    code = fingerprint.of_model(model)
    family = [registry.model_revision(model), None if code is None else code.digest]
    asked = [entry.name for entry in fields(Rates)]
    return {"key": key, "measure": question["measure"], "family": family, "asked": asked}


def _measure(
    questions: dict[str, Json], *, device: str, threads: int, processes: int, report: Reporter
) -> dict[str, Json]:
    """Ask `bench.plan.calibrate` in `processes` processes at the same time, and return `rate_key` -> its answer. With
    fewer questions than processes, some are asked twice, so that a worker is always measured beside its neighbours.

    Args:
        questions: `rate_key` -> question.
        threads: threads of each process.

    Raises:
        UserError: a process failed or was killed.
    """
    asked = list(questions.items())
    shares = [dict(asked[i::processes] or [asked[i % len(asked)]]) for i in range(processes)]
    command = [
        sys.executable,
        "-m",
        "bench.plan.calibrate",
        "--device",
        device,
        "--threads",
        str(threads),
        "--parent",
        str(os.getpid()),
    ]
    devices = accelerators(device)
    answers: dict[str, Json] = {}
    failures: list[ProcessFailed] = []

    def read(process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            if isinstance(event := from_line(line), ProcessFailed):
                failures.append(event)
                continue
            answer = json.loads(line)
            if (key := answer.pop("key")) not in answers:
                answers[key] = answer
                if len(questions) > 1 and "refused" in answer:  # a single one is raised as an error later
                    report.message(answer["refused"])
                report.calibrated(len(answers), len(questions))

    with contextlib.ExitStack() as opened:
        errors = [opened.enter_context(tempfile.TemporaryFile("w+", errors="replace")) for _ in shares]
        # The pool waits for its readers when it is left. So that they end, processes are killed before, if at all.
        pool = opened.enter_context(ThreadPoolExecutor(len(shares)))
        running: list[subprocess.Popen[str]] = []
        try:
            for index, file in enumerate(errors):
                running.append(
                    subprocess.Popen(
                        command,
                        stdin=subprocess.PIPE,
                        stdout=subprocess.PIPE,
                        stderr=file,
                        text=True,
                        env=child_environment(threads, devices=place(devices, index)),
                    )
                )
            for process, share in zip(running, shares, strict=True):
                assert process.stdin is not None
                with contextlib.suppress(BrokenPipeError):  # a process that could not start is reported below
                    process.stdin.write(json.dumps(share))
                    process.stdin.close()
            list(pool.map(read, running))
        except BaseException:  # Ctrl-C, or a signal to this process alone: nobody waits for their answers
            for process in running:
                process.kill()
            raise
        for process, file in zip(running, errors, strict=True):
            if (code := process.wait()) < 0:
                raise UserError(
                    f"A process that measured speeds was killed by {signal.Signals(-code).name}.",
                    "Run the same command again; where memory is short, with fewer --jobs.",
                )
            if code:
                if failures:
                    raise UserError(failures[0].what, failures[0].fix)
                file.seek(0)  # no failure was reported: the process crashed as it started
                last = file.read().strip().rpartition("\n")[2] or "The calibration failed."
                raise at_a_limit(last) or UserError(last)
    return answers


def rates_of(cell: Cell, calibration: Calibration, sizes: DataSizes) -> Rates | None:
    """Return throughput and cost of a cell's model; None if they are not known, since it cannot be run."""
    return calibration.rates.get(rate_key(cell, sizes[cell.data].classes))


def rated(cells: Sequence[Cell], calibration: Calibration, sizes: DataSizes) -> list[tuple[Cell, Rates]]:
    """Return (cell, throughput and cost of its model) for the cells of which these are known."""
    known = ((cell, rates_of(cell, calibration, sizes)) for cell in cells)
    return [(cell, rates) for cell, rates in known if rates is not None]


@dataclass(frozen=True, kw_only=True)
class CellCost:
    """The cost of what is left of a cell, on one worker of this machine.

    Attributes:
        seconds: seconds that are left.
        flops: convention of counting ("dense" or "paper") -> FLOPs of the whole cell, with the part of the training
            that its budgets share counted once; None: not counted.
        evaluate_share: fraction of the cell's time that goes into evaluating its horizons.
    """

    seconds: float
    flops: dict[str, int] | None = None
    evaluate_share: float = 0.0

    def fed(self, wait: float) -> float:
        """Return the seconds that are left if the fraction `wait` of the training time is spent waiting for images."""
        return self.seconds * (1 + (1 - self.evaluate_share) * wait / max(0.01, 1 - wait))


def cell_cost(
    cell: Cell,
    calibration: Calibration,
    sizes: DataSizes,
    *,
    ranks: int,
    fraction: float,
    device: str = "cpu",
    own: float = 1.0,
) -> CellCost:
    """Return the cost of a cell of which `fraction` has been trained already.

    Args:
        ranks: processes that train the cell together.
        own: fraction of a processor that each process has, where there are more processes than cores.

    Raises:
        UserError: the cell's job is not training and does not say how long it takes.
    """
    if cell.job != "train":  # such a job states how long it takes
        if (expected_seconds := registry.load("job", cell.job).expected_seconds) is None:
            raise UserError(f"The job {cell.job!r} does not say how long it takes.", "Give its JOB expected_seconds.")
        return CellCost(seconds=expected_seconds(cell, device=device))
    rates = calibration.rates[rate_key(cell, sizes[cell.data].classes)]
    images, horizons = images_trained(cell.recipe, cell.horizons), len(cell.horizons)
    training = images / (rates.train_images_per_second * gain(cell, rates, ranks=ranks, device=device, own=own))
    evaluation = horizons * evaluation_images(cell, sizes) / (own * rates.eval_images_per_second)
    evaluation += READ_TASK_SECONDS * horizons * len(cell.tasks)
    solving = (
        rates.slowness
        * solving_seconds(cell, sizes, features=rates.features)
        / (own * min(ranks, max(1, len(cell.tasks))))
    )
    beside = device != "cpu" and ranks == 1
    evaluation += waited(cell, solving, training=training) if beside else horizons * solving
    return CellCost(
        seconds=(training + evaluation) * (1 - fraction) + OPEN_DATA_SECONDS,
        flops={convention: per_image * images for convention, per_image in rates.train_flops_per_image.items()},
        evaluate_share=(evaluation + OPEN_DATA_SECONDS) / (training + evaluation + OPEN_DATA_SECONDS),
    )


def waited(cell: Cell, solving: float, *, training: float) -> float:
    """Return the seconds from the end of training until the probes of the last horizon are solved. Probes are solved
    beside training, one horizon after the other.

    Args:
        solving: seconds that the probes of one horizon take.
        training: seconds of the whole training.
    """
    done = 0.0
    for horizon in cell.horizons:
        done = max(done, training * horizon / max(1, cell.horizons[-1])) + solving
    return done - training


def gain(cell: Cell, rates: Rates, *, ranks: int, device: str, own: float = 1.0) -> float:
    """Return how many times as fast as a single process `ranks` processes train a cell together. They exchange
    gradients after every step, at an assumed speed and without overlap with computing.

    Args:
        rates: throughput of a single process, which has a processor of its own.
        own: fraction of a processor that each of the `ranks` processes has.
    """
    step = cell.recipe.batch / rates.train_images_per_second
    if ranks == 1:
        return own
    speed = (
        CPU_BYTES_PER_SECOND
        if device == "cpu"
        else NODE_BYTES_PER_SECOND
        if ranks <= ACCELERATORS_PER_NODE
        else NETWORK_BYTES_PER_SECOND
    )
    exchange = 2 * GRADIENT_BYTES * rates.params * (ranks - 1) / ranks / speed + (
        EXCHANGE_SECONDS_CPU if device == "cpu" else EXCHANGE_SECONDS
    )
    return step / (step / (ranks * own) + exchange / own)


def waiting(trained: float, decoded: float, *, device: str) -> float:
    """Return the fraction of the training time that is spent waiting for images.

    Args:
        trained: images per second that one process trains on if it never waits for images.
        decoded: images per second that the process's cores decode; 0 if nothing is decoded. A CPU decodes and trains in
            turns; for a GPU, processors decode while it trains.
    """
    if not decoded:
        return 0.0
    if device == "cpu":
        return trained / (trained + decoded)
    return max(0.0, 1 - decoded / trained)
