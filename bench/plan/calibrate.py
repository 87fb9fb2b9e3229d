"""Measures training and evaluation rates: JSON {key: {"cell", "classes", "measure"}} on standard input; on output a
line {"key", "rates", "known": what else was found that workers need (bench/cost/precomputed.py)} for each.

Run as a process of its own so that it sees the thread settings and the neighbours that a worker will see.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from bench.core.errors import EXIT_OK, command
from bench.core.spec import Cell, cell_from_json
from bench.cost import flops, peaks, precomputed
from bench.cost.flops import ModelCost
from bench.cost.peaks import Peak
from bench.plan.estimate import BUSY

SECONDS = 0.35  # of training steps per model, after warming up
LIMIT = 3.0  # seconds after which a model is not tried again, warm or not
TOO_SLOW = 2.0  # seconds that one step may be expected to take; beyond, it is derived instead of measured
ASSUMED = 0.3  # utilisation assumed where nothing is measured


@dataclass(frozen=True)
class Clock:
    """What passes for everybody, and what this thread gets of it; both in seconds."""

    wall: Callable[[], float] = time.perf_counter
    own: Callable[[], float] = time.thread_time


def quickest(run: Callable[[], object], *, clock: Clock = Clock()) -> tuple[float, float]:
    """(seconds of the quickest call, the share of a processor that the calls got).

    On a busy machine the seconds are the thread's own: a call of a second is interrupted whichever call it is.
    """
    begun = clock.wall()
    calls: list[tuple[float, float]] = []
    while len(calls) < 2 or (clock.wall() - begun < LIMIT and sum(wall for wall, _ in calls[1:]) < SECONDS):
        wall, own = clock.wall(), clock.own()
        run()
        calls.append((clock.wall() - wall, clock.own() - own))
        if clock.wall() - begun > LIMIT:
            break
    warm = calls[1:] or calls
    share = min(1.0, sum(own for _, own in warm) / max(1e-9, sum(wall for wall, _ in warm)))
    return min(own if share < BUSY else wall for wall, own in warm), share


def answer(cell: Cell, classes: int, *, device: str, threads: int, measure: bool) -> dict[str, Any]:
    """{"rates": fields of `bench.plan.estimate.Rates`, "known": what workers would find out again}; without `measure`
    the rates are derived from the model's FLOPs."""
    sizes: dict[str, Any] = {"image_size": cell.image_size, "channels": cell.channels, "num_classes": classes}
    cost = flops.count(cell.model, **sizes, model_options=cell.model_options, activations=False)
    dtype = _dtype(cell, sizes, device)
    peak = peaks.peak(dtype, device=device, threads=threads)
    return {
        "rates": _rates(cell, cost, sizes, peak=peak, device=device, measured=measure),
        "known": precomputed.to_json(measured={dtype: peak}, costs=[(cost, cell.model_options)]),
    }


def _dtype(cell: Cell, sizes: dict[str, Any], device: str) -> str:
    """What the cell will be trained in: a matter of the model's shapes."""
    import torch

    from bench.core import registry
    from bench.train import precision

    with torch.device("meta"):
        model = registry.build_model(cell.model, **sizes, **dict(cell.model_options))
    return precision.resolve(cell.recipe.dtype, device, model)


def _rates(
    cell: Cell, cost: ModelCost, sizes: dict[str, Any], *, peak: Peak, device: str, measured: bool
) -> dict[str, Any]:
    result: dict[str, Any] = {"train_flops_per_image": cost.train_flops_per_image, "params": cost.params}
    per_image = max(1, cost.train_flops_per_image["dense"])
    if not measured or cell.recipe.batch * per_image / (ASSUMED * peak.flops_per_second) > TOO_SLOW:
        rate = ASSUMED * peak.flops_per_second / per_image
        basis = f"not measured: {ASSUMED:.0%} of {peak.source} assumed"
        return result | {
            "train_images_per_second": rate, "eval_images_per_second": 3 * rate, "measured": False, "basis": basis,
        }  # fmt: skip
    train, evaluate, share = measure(cell, sizes, device=device, trains=cost.params > 0)
    return result | {
        "train_images_per_second": train,
        "eval_images_per_second": evaluate,
        "measured": True,
        "basis": f"measured over {SECONDS:g} s, with {share:.0%} of a processor",
        "share": share,
    }


def measure(cell: Cell, sizes: dict[str, Any], *, device: str, trains: bool) -> tuple[float, float, float]:
    """(training, evaluation) images per second of the real step on made-up images; the share of a processor it got."""
    import torch

    from bench.core import registry
    from bench.data.image_set import ImageSet
    from bench.tasks._features import extractor
    from bench.train.batches import Batches
    from bench.train.trainer import Trainer

    noise = np.random.default_rng(0)
    count, side = 512, cell.image_size
    images = ImageSet(
        name="noise", split="train", kind="rendered",
        images_NHWC=noise.integers(0, 256, (count, side, side, cell.channels), dtype=np.uint8),
        labels_N=noise.integers(0, sizes["num_classes"], count),
        class_names=tuple(map(str, range(sizes["num_classes"]))),
    )  # fmt: skip
    model = registry.build_model(cell.model, **sizes, **dict(cell.model_options)).to(device)

    def synchronise() -> None:
        if device != "cpu":
            torch.cuda.synchronize()

    shares: list[float] = []

    def rate(run: Any, per_call: int) -> float:
        def call() -> None:
            run()
            synchronise()

        seconds, share = quickest(call, clock=clock)
        shares.append(share)
        return per_call / seconds

    clock = Clock() if device == "cpu" else Clock(own=time.perf_counter)  # a processor that waits for the GPU is idle
    train = float("inf")
    if trains:
        horizon = (cell.recipe.batch * 1000,)
        trainer = Trainer(
            model=model, recipe=cell.recipe, horizons=horizon, seed=0, device=device,
            batches=Batches(images, recipe=cell.recipe, seed=0, device=device),
        )  # fmt: skip
        model.train()
        train = rate(trainer.step, cell.recipe.batch)
    model.eval()
    features = extractor(model, image_size=side, channels=cell.channels, device=device, batch=256)
    evaluate = rate(lambda: features(images.images_NHWC[:256]), 256)
    return (train if trains else evaluate), evaluate, min(shares)


@command
def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args(argv)
    import torch

    torch.set_num_threads(options.threads)
    for key, job in json.load(sys.stdin).items():
        cell, asked = cell_from_json(job.pop("cell")), vars(options) | job
        print(json.dumps({"key": key} | answer(cell, **asked)), flush=True)
    return EXIT_OK


if __name__ == "__main__":
    sys.exit(main())
