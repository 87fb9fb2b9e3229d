"""How much slower training from shards is than from one batch of random pixels that stays, in turns, in one process.

    python -m tools.measure_training [--data-root FOLDER --data folder:NAME] [--model ViT-S/16] [--size 224]
                                          [--batch 8] [--steps 1] [--rounds 30]

The same network trains on both; windows of some steps alternate, and turns of which of the two comes first; intervals
are of 95 %, by the t distribution, over the turns. Seconds are the clock's, and beside them the processor's, of the
process that trains alone: on a busy machine only they are steady, but they leave out waiting, which is timed by itself.
The share of the time that is spent waiting is then compared with what the plan expects (bench/plan/estimate.py).

Without --data-root, shards of 1,000 images are drawn first (tests/data/photographs.py).
"""

from __future__ import annotations

import argparse
import tempfile
import time
from itertools import count
from pathlib import Path

import numpy as np
import torch
from scipy import stats
from torch import Tensor

from bench.core import environment
from bench.data.load import load, some_encoded
from bench.plan import estimate
from bench.study import registry
from bench.study.cell import Recipe
from bench.train.batches import Batches
from bench.train.decoding import decoded_per_second
from bench.train.trainer import Trainer
from tests.data import photographs


def seconds(trainer: Trainer, batches: object, steps: int) -> tuple[float, float]:
    """(the clock's, the processor's) of some steps."""
    trainer.batches = batches  # type: ignore[assignment]
    started, spent = time.perf_counter(), time.process_time()
    for _ in range(steps):
        trainer.step()
        trainer.progress.step += 1
    return time.perf_counter() - started, time.process_time() - spent


def compare(given: argparse.Namespace, root: Path) -> None:
    recipe = Recipe(batch=given.batch, crop=0.05, flip=True, shift=0, dtype="float32")
    images = load(f"{given.data}:{given.size}px:rgb:stream", "train", root=root)
    model = registry.build_model(given.model, image_size=given.size, channels=3, num_classes=images.num_classes)
    fit = (given.size, 3)
    streamed = Batches(images, recipe=recipe, seed=0, device="cpu", workers=given.workers, fit=fit)
    trainer = Trainer(
        model=model, batches=streamed, recipe=recipe, horizons=(1 << 20,), seed=0, device="cpu", saving=None
    )
    model.train()
    x_BCHW = torch.rand(given.batch, 3, given.size, given.size) * 2 - 1
    kept: tuple[Tensor, Tensor] = x_BCHW, torch.randint(images.num_classes, (given.batch,))
    ahead = count()  # the reader starts again where a step is left out, as only a resumed run does
    ways = {"random": lambda step: kept, "shards": lambda step: streamed(next(ahead))}
    for batches in ways.values():
        seconds(trainer, batches, given.steps)  # memory is taken, readers start
    seconds_of: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    assert streamed.reader is not None
    waited = streamed.reader.waited
    for number in range(given.rounds):
        for name in list(ways)[:: 1 if number % 2 else -1]:
            seconds_of[name].append(seconds(trainer, ways[name], given.steps))
    waited = streamed.reader.waited - waited
    streamed.reader.close()
    shards_T2, random_T2 = np.array(seconds_of["shards"]), np.array(seconds_of["random"])
    each = given.steps * given.batch
    print(
        f"{given.model} at {given.size} px, batches of {given.batch}, {torch.get_num_threads()} thread, "
        f"{streamed.reader.workers} reader(s), {given.rounds} turns of {given.steps} steps each"
    )
    for at, clock in enumerate(("the clock's", "the processor's")):
        slower = np.log(shards_T2[:, at] / random_T2[:, at])
        half = stats.t.ppf(0.975, len(slower) - 1) * stats.sem(slower)
        mean, low, high = np.expm1(slower.mean() + np.array([0, -half, half]))
        print(
            f"  {clock} seconds: {each / np.median(random_T2[:, at]):.4g} images/s from random pixels, "
            f"{each / np.median(shards_T2[:, at]):.4g} from shards; slower by {mean:.2%} [{low:.2%}, {high:.2%}], "
            f"median {np.expm1(np.median(slower)):.2%}"
        )
    files = some_encoded(f"{given.data}:{given.size}px:rgb:stream", root=root)
    rate = decoded_per_second(files, size=given.size, channels=3, crop=recipe.crop)
    expected = estimate.waiting(each / np.median(random_T2[:, 1]), environment.cores() * rate, device="cpu")
    print(
        f"  waiting for images: {waited / shards_T2[:, 0].sum():.2%} of the time from shards; the "
        f"plan expects {expected:.2%} ({rate:,.0f} images/s decoded per core)"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-root", type=Path)
    parser.add_argument("--data", default="folder:shards", help="without a size")
    parser.add_argument("--model", default="ViT-S/16")
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--steps", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--workers", type=int, default=1, help="readers")
    given = parser.parse_args()
    torch.set_num_threads(1)
    if given.data_root is not None:
        return compare(given, given.data_root)
    with tempfile.TemporaryDirectory(prefix="training-") as where:
        photographs.write(Path(where, "shards"), images=1_000, different=250, tests=100)
        return compare(given, Path(where))


if __name__ == "__main__":
    main()
