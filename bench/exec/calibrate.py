"""Measures training and evaluation rates: JSON {key: {"cell", "classes"}} on standard input; on output {"rates":
{key: rates}, "known": what else was found that workers need (bench/cost/known.py)}.

Run as a process of its own so that it sees the thread settings and the neighbours that a worker will see.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import Any

import numpy as np

from bench.cost import flops, known, peaks
from bench.cost.flops import ModelCost
from bench.cost.peaks import Peak
from bench.errors import EXIT_OK, command
from bench.spec import Cell, cell_from_json

SECONDS = 0.35  # of training steps per model, after warming up
TOO_SLOW = 2.0  # seconds that one step may be expected to take; beyond, it is derived instead of measured
ASSUMED = 0.3  # utilisation assumed where nothing is measured


class Calibration:
    """Looks at one model after another, and keeps what workers would find out again."""

    def __init__(self, *, device: str, threads: int) -> None:
        self.device, self.threads = device, threads
        self.peaks: dict[str, Peak] = {}
        self.costs: list[tuple[ModelCost, flops.Options]] = []

    def rates(self, cell: Cell, classes: int) -> dict[str, Any]:
        """Rates of one model, as the fields of `bench.estimate.Rates`."""
        sizes: dict[str, Any] = {"image_size": cell.image_size, "channels": cell.channels, "num_classes": classes}
        cost = flops.count(cell.model, **sizes, model_options=cell.model_options, activations=False)
        self.costs.append((cost, cell.model_options))
        dtype = _dtype(cell, sizes, self.device)
        self.peaks[dtype] = peaks.peak(dtype, device=self.device, threads=self.threads)
        return _rates(cell, cost, sizes, peak=self.peaks[dtype], device=self.device)

    def known(self) -> dict[str, Any]:
        return known.describe(measured=self.peaks, costs=self.costs)


def _dtype(cell: Cell, sizes: dict[str, Any], device: str) -> str:
    """What the cell will be trained in: a matter of the model's shapes."""
    import torch

    from bench import models
    from bench.train import precision

    with torch.device("meta"):
        model = models.build(cell.model, **sizes, **dict(cell.model_options))
    return precision.resolve(cell.recipe.dtype, device, model)


def _rates(cell: Cell, cost: ModelCost, sizes: dict[str, Any], *, peak: Peak, device: str) -> dict[str, Any]:
    result: dict[str, Any] = {"train_flops_per_image": cost.train_flops_per_image, "params": cost.params}
    per_image = max(1, cost.train_flops_per_image["dense"])
    if cell.recipe.batch * per_image / (ASSUMED * peak.flops_per_second) > TOO_SLOW:
        rate = ASSUMED * peak.flops_per_second / per_image
        basis = f"not measured: {ASSUMED:.0%} of {peak.source} assumed"
        return result | {
            "train_images_per_second": rate, "eval_images_per_second": 3 * rate, "measured": False, "basis": basis,
        }  # fmt: skip
    train, evaluate = measure(cell, sizes, device=device, trains=cost.params > 0)
    return result | {
        "train_images_per_second": train,
        "eval_images_per_second": evaluate,
        "measured": True,
        "basis": f"measured over {SECONDS:g} s",
    }


def measure(cell: Cell, sizes: dict[str, Any], *, device: str, trains: bool) -> tuple[float, float]:
    """(training, evaluation) images per second of the real step on made-up images."""
    import torch

    from bench import models
    from bench.data.images import ImageSet
    from bench.tasks._features import extractor
    from bench.train.batches import Batches
    from bench.train.loop import Trainer

    noise = np.random.default_rng(0)
    count, side = 512, cell.image_size
    images = ImageSet(
        name="noise", split="train", kind="rendered",
        images_NHWC=noise.integers(0, 256, (count, side, side, cell.channels), dtype=np.uint8),
        labels_N=noise.integers(0, sizes["num_classes"], count),
        class_names=tuple(map(str, range(sizes["num_classes"]))),
    )  # fmt: skip
    model = models.build(cell.model, **sizes, **dict(cell.model_options)).to(device)

    def synchronise() -> None:
        if device != "cpu":
            torch.cuda.synchronize()

    def rate(run: Any, per_call: int) -> float:
        run(), run()
        synchronise()
        start, calls = time.perf_counter(), 0
        while time.perf_counter() - start < SECONDS or not calls:
            run()
            synchronise()
            calls += 1
        return calls * per_call / (time.perf_counter() - start)

    train = float("inf")
    if trains:
        horizon = (cell.recipe.batch * 1000,)
        trainer = Trainer(
            model=model, initialise=lambda: None, recipe=cell.recipe, horizons=horizon, seed=0, device=device,
            batches=Batches(images, recipe=cell.recipe, seed=0, device=device), folder=None,
            evaluate=lambda *_: {}, progress=lambda _: None, should_stop=lambda: False, log=lambda _: None,
        )  # fmt: skip
        model.train()
        train = rate(trainer.step, cell.recipe.batch)
    model.eval()
    features = extractor(model, image_size=side, channels=cell.channels, device=device, batch=256)
    evaluate = rate(lambda: features(images.images_NHWC[:256]), 256)
    return (train if trains else evaluate), evaluate


@command
def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args(argv)
    import torch

    torch.set_num_threads(options.threads)
    calibration = Calibration(device=options.device, threads=options.threads)
    found = {
        key: calibration.rates(cell_from_json(job["cell"]), job["classes"]) for key, job in json.load(sys.stdin).items()
    }
    print(json.dumps({"rates": found, "known": calibration.known()}))
    return EXIT_OK


if __name__ == "__main__":
    sys.exit(main())
