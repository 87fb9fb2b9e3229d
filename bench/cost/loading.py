"""How fast images become batches, against the speed of a plain copy: `python -m bench.cost.loading`.

Four ways take turns, each with a copy of as many bytes as it delivers, from an array as large as the images:

- read in order: slices of a memory-mapped set, as features are extracted from it;
- read at random: rows of a memory-mapped set, as subsets are taken;
- batches: what training takes (`bench.train.batches`): gathered at random, normalised to float32;
- batches, shifted: the same with random translation.

Time is that of the processor on one thread, so that a busy machine changes little; every figure is the median over
rounds. Pixels are made up, and lie in a file that the system keeps in memory.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from bench.core.cli import positive
from bench.core.spec import Recipe
from bench.data.image_set import ImageSet
from bench.train.batches import Batches

ROUNDS, SECONDS = 9, 0.1  # windows of each way, and how long one lasts at least
SHIFT = 2  # pixels


@dataclass(frozen=True, kw_only=True)
class Pace:
    """One way of loading, beside a copy of the same bytes; medians over rounds.

    Attributes:
        seconds, copy_seconds: per batch. of_limit: the copy's share of this way's time, paired round by round.
        batch: images. bytes_each: bytes delivered per image: one per value as read, four in a batch.
    """

    seconds: float
    copy_seconds: float
    of_limit: float
    batch: int
    bytes_each: int

    @property
    def images_per_second(self) -> float:
        return self.batch / self.seconds

    @property
    def bytes_per_second(self) -> float:
        return self.images_per_second * self.bytes_each


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.cost.loading", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--images", type=positive, default=60_000)
    parser.add_argument("--size", type=positive, default=28, help="pixels per side (default 28)")
    parser.add_argument("--channels", type=int, choices=(1, 3), default=1)
    parser.add_argument("--batch", type=positive, default=64)
    parser.add_argument("--rounds", type=positive, default=ROUNDS)
    parser.add_argument("--seconds", type=float, default=SECONDS, help=f"of one window (default {SECONDS})")
    args = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        images = made_up(Path(folder), (args.images, args.size, args.size, args.channels))
        found = measure(images, batch=args.batch, rounds=args.rounds, seconds=args.seconds)
    shape = f"{args.size} x {args.size} x {args.channels}"
    print(f"{args.images:,} images of {shape}, batches of {args.batch}, one thread, medians of {args.rounds}:")
    print(f"  {'':18}{'batches/s':>11}{'images/s':>12}{'GB/s':>8}{'copy GB/s':>11}{'of the copy limit':>19}")
    for name, pace in found.items():
        rates = f"{1 / pace.seconds:>11,.0f}{pace.images_per_second:>12,.0f}{pace.bytes_per_second / 1e9:>8.2f}"
        copied = pace.bytes_per_second * pace.seconds / pace.copy_seconds / 1e9
        print(f"  {name:18}{rates}{copied:>11.2f}{pace.of_limit:>19.0%}")
    return 0


def made_up(folder: Path, shape: tuple[int, ...]) -> ImageSet:
    """Random pixels of shape (N, H, W, C), memory-mapped from a file as the cache's sets are."""
    stored = np.lib.format.open_memmap(folder / "images.npy", mode="w+", dtype=np.uint8, shape=shape)
    random = np.random.default_rng(0)
    for row in range(shape[0]):
        stored[row] = random.integers(0, 256, shape[1:], dtype=np.uint8)
    stored.flush()
    return ImageSet(
        name="made up",
        split="train",
        images_NHWC=np.load(folder / "images.npy", mmap_mode="r"),
        labels_N=np.zeros(shape[0], dtype=np.int64),
        class_names=("0",),
        kind="rendered",
    )


def measure(images: ImageSet, *, batch: int, rounds: int = ROUNDS, seconds: float = SECONDS) -> dict[str, Pace]:
    """The pace of every way of loading, by its name; ways and copies take turns in every round."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        calls = ways(images, batch=batch)
        each = int(np.prod(images.images_NHWC.shape[1:]))
        sizes = {name: 4 * each if name.startswith("batches") else each for name in calls}
        copies = {size: copying(images.images_NHWC, batch * size) for size in set(sizes.values())}
        counts = {call: calls_in(seconds, call) for call in (*calls.values(), *copies.values())}
        spent: dict[str, list[tuple[float, float]]] = {name: [] for name in calls}
        for _ in range(rounds):
            for name, call in calls.items():
                copy = copies[sizes[name]]
                spent[name].append((clock(call, counts[call]), clock(copy, counts[copy])))
    finally:
        torch.set_num_threads(threads)
    return {
        name: Pace(
            seconds=statistics.median(own for own, _ in pairs),
            copy_seconds=statistics.median(copy for _, copy in pairs),
            of_limit=statistics.median(copy / own for own, copy in pairs),
            batch=batch,
            bytes_each=sizes[name],
        )
        for name, pairs in spent.items()
    }


def ways(images: ImageSet, *, batch: int) -> dict[str, Callable[[], object]]:
    """By name, what makes the next batch."""
    pixels_NHWC, count = images.images_NHWC, len(images)
    starts = itertools.cycle(range(0, max(1, count - batch + 1), batch))
    random = np.random.default_rng(0)

    def trained(shift: int) -> Callable[[], object]:
        batches = Batches(images, recipe=Recipe(batch=batch, shift=shift, flip=False), seed=0, device="cpu")
        steps: Iterator[int] = itertools.count()
        return lambda: batches(next(steps))

    def in_order() -> object:
        start = next(starts)
        return np.array(pixels_NHWC[start : start + batch])

    return {
        "read in order": in_order,
        "read at random": lambda: pixels_NHWC[random.integers(0, count, batch)],
        "batches": trained(0),
        "batches, shifted": trained(SHIFT),
    }


def copying(pixels_NHWC: np.ndarray, size: int) -> Callable[[], None]:
    """A copy of the next `size` bytes, from an array in memory as large as the pixels, into one place."""
    source = np.resize(np.asarray(pixels_NHWC).reshape(-1), max(size, pixels_NHWC.size))
    target = np.empty(size, dtype=np.uint8)
    starts = itertools.cycle(range(0, source.size - size + 1, size))

    def copy() -> None:
        start = next(starts)
        np.copyto(target, source[start : start + size])

    return copy


def calls_in(seconds: float, call: Callable[[], object]) -> int:
    """How often to call it for a window of this length; also its first, slower calls."""
    count = 1
    while clock(call, count) * count < seconds / 2:
        count *= 2
    return count


def clock(call: Callable[[], object], count: int) -> float:
    """Processor seconds of one call, over `count` of them."""
    started = time.process_time()
    for _ in range(count):
        call()
    return (time.process_time() - started) / count


if __name__ == "__main__":
    sys.exit(main())
