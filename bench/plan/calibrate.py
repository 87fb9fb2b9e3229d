"""Measures training and evaluation rates: JSON {key: {"cell", "classes", "measure"}} on standard input; on output a
line {"key", "rates", "precomputed": what else was found that workers need (bench/cost/precomputed.py)} for each, or
{"key", "refused": why this model cannot be counted, trained or probed}.

Run as a process of its own so that it sees the thread settings and the neighbours that a worker will see.
"""

from __future__ import annotations

import argparse
import functools
import json
import math
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from bench.core.device import InBatches, synchronise
from bench.core.errors import EXIT_OK, UserError, command
from bench.core.events import reports_failure
from bench.core.subprocesses import end_with
from bench.core.user_code import answers_only
from bench.cost import flops, peaks, precomputed
from bench.plan.estimate import MIN_PROCESSOR_SHARE, Rates
from bench.study import registry
from bench.study.cell import Cell, cell_from_json

MEASURED_SECONDS = 0.35  # seconds of training steps that are measured per model, after warming up
MAX_MEASURING_SECONDS = 3.0  # seconds after which a model's step is not tried again
MAX_STEP_SECONDS = 2.0  # the time of a step that is expected to take longer is derived instead of measured
ASSUMED_UTILISATION = 0.3  # fraction of the peak that training is taken to reach where nothing is measured
COMPILED_COMPUTING, COMPILED_LAUNCHING = 0.65, 0.5  # guesses for a compiled step, as fractions of an eager one's
RECORDED_LAUNCHING = 1e-3  # seconds in which a step recorded as a CUDA graph is launched; a guess, too
HELD_CYCLES, HELD_STEPS = 200_000_000, 3  # GPU cycles, a tenth of a second; steps that are launched while it is held
EVALUATED_IMAGES = 256  # images of a measured call of evaluation
TRAINING_IMAGES = 512  # images of the made-up training set


@dataclass(frozen=True)
class Clock:
    """Two functions that return seconds: `wall` the time that passes, `own` the processor time of this thread."""

    wall: Callable[[], float] = time.perf_counter
    own: Callable[[], float] = time.thread_time


def quickest(run: Callable[[], object], *, clock: Clock = Clock()) -> tuple[float, float]:
    """Time a function by calling it several times. Return (seconds of the quickest call, the fraction of a processor
    that the calls got).

    The first call allocates memory, and on a GPU chooses kernels; it is not counted if there is another. On a busy
    machine the seconds are processor time of this thread instead of wall time, since every call as long as a second is
    interrupted by other processes.
    """
    begun = clock.wall()
    calls: list[tuple[float, float]] = []
    while len(calls) < 3 or (
        clock.wall() - begun < MAX_MEASURING_SECONDS and sum(wall for wall, _ in calls[1:]) < MEASURED_SECONDS
    ):
        wall, own = clock.wall(), clock.own()
        run()
        calls.append((clock.wall() - wall, clock.own() - own))
        if clock.wall() - begun > MAX_MEASURING_SECONDS > sum(own for _, own in calls):  # other processes took the time
            break
    warm = calls[1:] or calls
    share = min(1.0, sum(own for _, own in warm) / max(1e-9, sum(wall for wall, _ in warm)))
    return min(own if share < MIN_PROCESSOR_SHARE else wall for wall, own in warm), share


def answer(cell: Cell, classes: int, *, device: str, threads: int, measure: bool) -> dict[str, Any]:
    """Return what a plan and its workers have to know of a cell's model, as JSON types: {"rates": fields of
    `bench.plan.estimate.Rates`, "precomputed": results that workers would otherwise compute again}.

    Args:
        classes: number of classes that the model is built with.
        threads: threads of this process.
        measure: whether to measure throughputs. They are derived from the model's FLOPs otherwise, and also if a step
            is expected to take longer than `MAX_STEP_SECONDS`.
    """
    from bench.cost import receptive_field
    from bench.train import modes

    cost, sizes = _counted(cell, classes)
    dtype = _dtype(cell, sizes, device)
    peak = peaks.peak(dtype, device=device, threads=threads)
    assumed = (
        ASSUMED_UTILISATION * peak.flops_per_second / max(1, cost.train_flops_per_image["dense"])
    )  # images per second
    measure = measure and cell.recipe.batch / assumed <= MAX_STEP_SECONDS
    if measure:
        train, evaluate, share, parts = _measured(cell, sizes, device=device, trains=cost.params > 0)
        basis = f"measured over {MEASURED_SECONDS:g} s, with {share:.0%} of a processor"
        if (mode := modes.mode_for(device)) != "off":  # compiling could take longer than the cells
            seconds = compiled_seconds(*parts, recorded=mode in modes.WITH_GRAPHS) if parts[1] else math.inf
            gain, measure = max(1.0, cell.recipe.batch / seconds / train), False
            train *= gain
            basis += f"; training is guessed to be {gain:.1f} times as fast as that, compiled"
    else:
        train, evaluate, share, parts = assumed, 3 * assumed, 1.0, (0.0, 0.0)
        basis = f"not measured: {ASSUMED_UTILISATION:.0%} of {peak.source} assumed"
    rates = Rates(
        model=cell.model,
        train_images_per_second=train,
        eval_images_per_second=evaluate,
        measured=measure,
        basis=basis,
        train_flops_per_image=dict(cost.train_flops_per_image),
        params=cost.params,
        share=share,
        activation_bytes=cost.activation_bytes or 0,
        features=cost.num_features,
        slowness=_slowness(tuple(task.task for task in cell.tasks)) if measure else 1.0,
    )
    image = {name: sizes[name] for name in ("image_size", "channels")}
    sight = receptive_field.of_model(cell.model, **image, model_options=cell.model_options)
    rates = replace(rates, sees=sight.pixels, group=sight.group)
    for_workers = precomputed.to_json(measured={dtype: peak}, costs=[(cost, cell.model_options)])
    return {"rates": asdict(rates), "precomputed": for_workers}


def compiled_seconds(launching: float, computing: float, *, recorded: bool) -> float:
    """Guess the seconds of a compiled step from those of an eager one. Small networks gain most, because they wait for
    launches.

    Args:
        launching: seconds in which a processor launches the kernels of the eager step.
        computing: seconds in which the device computes the eager step.
        recorded: whether the compiled step is recorded as a CUDA graph.
    """
    launched = RECORDED_LAUNCHING if recorded else COMPILED_LAUNCHING * launching
    return max(COMPILED_COMPUTING * computing, launched)


@functools.cache
def _slowness(tasks: tuple[str, ...]) -> float:
    """Return the factor by which tasks take longer on this machine than they state, measured by the first of `tasks`
    that can measure it; 1 if none can. It is measured once for all models."""
    says = (registry.load("task", name).slowness for name in tasks)
    return next((each(lambda run: quickest(run)[0]) for each in says if each is not None), 1.0)


def _counted(cell: Cell, classes: int, **_: Any) -> tuple[flops.ModelCost, dict[str, Any]]:
    """Return the cost of a cell's model (FLOPs, parameters, activations), which is counted once, and the arguments that
    the model is built with.

    Args:
        classes: number of classes.
        _: ignored; the function takes the same arguments as `answer`.

    Raises:
        UserError: the model cannot be built.
    """
    sizes: dict[str, Any] = {"image_size": cell.image_size, "channels": cell.channels, "num_classes": classes}
    return flops.count(cell.model, **sizes, model_options=cell.model_options), sizes


def refusal(cell: Cell, error: Exception) -> str:
    """Return in words why a model cannot take part. Unless the error is a UserError, the text names the model, its file
    and the size of its images."""
    if isinstance(error, UserError):
        return str(error)
    where = f"{cell.model} ({registry.source_of(cell.model)}) at {cell.image_size} px"
    return f"{where}: {type(error).__name__}: {str(error).partition(chr(10))[0]}"


def _dtype(cell: Cell, sizes: dict[str, Any], device: str) -> str:
    """Return the precision in which the cell's model is trained on a device, such as "bfloat16". `sizes`: arguments of
    the model, whose shapes decide if the recipe leaves the precision open."""
    from bench.cost.without_weights import built
    from bench.train import precision

    model = built(cell.model, **sizes, **dict(cell.model_options))
    return precision.resolve(cell.recipe.dtype, device, model)


def launched(step: Callable[[], object], *, device: str) -> tuple[float, float]:
    """Time a training step. Return (seconds in which a processor launches its kernels, seconds in which a CUDA device
    computes them), each the least of several tries.

    In half of the tries the device is kept busy until all kernels are launched, so that it never waits for a launch.
    """
    import torch

    parts: list[tuple[float, float]] = []
    for held in (0, HELD_CYCLES) * HELD_STEPS:
        begun, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        synchronise(device)
        if held:
            torch.cuda._sleep(held)
        begun.record()
        started = time.perf_counter()
        step()
        seconds = time.perf_counter() - started
        ended.record()
        synchronise(device)
        parts.append((seconds, begun.elapsed_time(ended) / 1e3))
    # what is launched while the device is held may wait for room in its queue
    return min(seconds for seconds, _ in parts[::2]), min(seconds for _, seconds in parts)


def _measured(
    cell: Cell, sizes: dict[str, Any], *, device: str, trains: bool
) -> tuple[float, float, float, tuple[float, float]]:
    """Measure the real training step and evaluation on made-up images.

    Args:
        sizes: arguments of the model.
        trains: whether the model has anything to train; if not, its throughput of evaluation stands for that of
            training.

    Returns:
        Images per second of training, images per second of evaluation, the fraction of a processor that the
            measurements got, and what `launched` returns for the training step on CUDA, else zeros.
    """
    from bench.data.image_set import ImageSet
    from bench.tasks._features import extractor
    from bench.train import inference, modes
    from bench.train.batches import Batches
    from bench.train.trainer import Trainer

    noise = np.random.default_rng(0)
    side, classes = cell.image_size, sizes["num_classes"]
    images = ImageSet(
        name="noise",
        split="train",
        kind="rendered",
        images_NHWC=noise.integers(0, 256, (TRAINING_IMAGES, side, side, cell.channels), dtype=np.uint8),
        labels_N=noise.integers(0, classes, TRAINING_IMAGES),
        class_names=tuple(map(str, range(classes))),
    )
    model = registry.build_model(cell.model, **sizes, **dict(cell.model_options)).to(device)
    clock = Clock() if device == "cpu" else Clock(own=time.perf_counter)  # a thread that waits for a GPU seems idle

    def measured(run: Callable[[], object]) -> tuple[float, float]:
        def call() -> None:
            run()
            synchronise(device)

        return quickest(call, clock=clock)

    rates: list[tuple[float, float]] = []  # images per second, fraction of a processor
    parts = (0.0, 0.0)
    if trains:
        with modes.switched("off"):
            trainer = Trainer(
                model=model,
                recipe=cell.recipe,
                horizons=(cell.recipe.batch * 1000,),
                seed=0,
                device=device,
                batches=Batches(images, recipe=cell.recipe, seed=0, device=device),
            )
        model.train()
        seconds, share = measured(trainer.step)
        rates.append((cell.recipe.batch / seconds, share))
        parts = launched(trainer.step, device=device) if device.startswith("cuda") else parts
    model.eval()
    batches = InBatches(EVALUATED_IMAGES, device=device)
    dtype = inference.resolve(cell.recipe.evaluation_dtype, device, model)
    with modes.switched("off"):
        network = inference.in_precision(model, dtype=dtype, device=device, batches=batches)
    features = extractor(network, image_size=side, channels=cell.channels, device=device, batches=batches)
    seconds, share = measured(lambda: features(images.images_NHWC[:EVALUATED_IMAGES]))
    rates.append((EVALUATED_IMAGES / seconds, share))
    return rates[0][0], rates[-1][0], min(share for _, share in rates), parts


@command
@reports_failure
def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--parent", type=int, help="stop when this is no longer the parent")
    options = parser.parse_args(argv)
    if options.parent is not None:
        end_with(options.parent)
    from bench.train import precision

    precision.set_up(threads=options.threads)
    with answers_only() as answers:
        questions = json.load(sys.stdin)
        for step in (_counted, answer):  # a model that cannot be built is reported before any is measured
            for key, question in list(questions.items()):
                cell = cell_from_json(question["cell"])
                try:
                    said = step(**question | {"cell": cell}, device=options.device, threads=options.threads)
                except Exception as error:  # a user's network may raise anything: the others are measured all the same
                    said = {"refused": refusal(cell, error)}
                    del questions[key]
                if isinstance(said, dict):
                    print(json.dumps({"key": key} | said), file=answers, flush=True)
    return EXIT_OK


if __name__ == "__main__":
    sys.exit(main())
