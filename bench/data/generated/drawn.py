"""Rendered data sets with any number of classes and images, named `SET:CLASSESxIMAGES:64px`. An image of a split
depends only on (class, index), so a larger set contains every smaller one of the same size in pixels."""

from __future__ import annotations

import itertools
import re
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context

import numpy as np

from bench.core.environment import cores
from bench.core.errors import UserError
from bench.core.subprocesses import end_with_starter
from bench.data import cache
from bench.data.data_set import Numbers
from bench.data.image_set import ImageSet
from bench.data.progress import Progress

MAX_IMAGES = 100_000_000
PER_CLASS_TEST = 25
IMAGES_PER_PIECE = 512  # images that are rendered in one call
MAX_IMAGES_OF_ONE_PROCESS = 20_000  # largest set that one process renders: starting others would take longer

Draw = Callable[..., np.ndarray]  # (numbers_N, classes, split, size) -> uint8 (N, size, size, C); runs in any process


@dataclass(frozen=True, kw_only=True)
class Asked:
    """The size of a rendered set: number of classes, training images per class, pixels per side."""

    classes: int
    per_class: int
    side: int

    @property
    def size(self) -> Numbers:
        """The numbers of training images, test images and classes of the whole set."""
        test = self.classes * min(PER_CLASS_TEST, self.per_class)
        return {"train": self.classes * self.per_class, "test": test, "classes": self.classes}


def parsed(name: str, option: str, usual: Asked) -> Asked:
    """Parse the option of a set's name, the text after the colon: "100x50:32px" means 100 classes of 50 training images
    at 32 px. Parts that are left out are taken from `usual`.

    Raises:
        UserError: the option has another form, or a number is out of range.
    """
    match = re.fullmatch(r"(?:(\d{1,6})x(\d{1,7}))?(?:(?:^|:)(\d{2,3})px)?", option)
    if match is None:
        raise UserError(f"{name}:{option} is not understood.", f"Write {name}:CLASSESxIMAGES:64px, or a part of it.")
    classes, per_class, side = match.groups()
    asked = Asked(
        classes=int(classes or usual.classes), per_class=int(per_class or usual.per_class), side=int(side or usual.side)
    )
    if asked.classes < 2 or not 1 <= asked.per_class <= MAX_IMAGES // asked.classes or not 16 <= asked.side <= 256:
        raise UserError(
            f"{name}:{option} is out of range.", f"2 classes or more, 16 to 256 px, {MAX_IMAGES:,} images at most."
        )
    return asked


def image_set(
    name: str,
    option: str,
    split: str,
    asked: Asked,
    *,
    draw: Draw,
    channels: int,
    revision: int,
    class_names: tuple[str, ...],
    made_of: str = "",
    groups_N: np.ndarray | None = None,
) -> ImageSet:
    """Return one split of a rendered set. It is rendered once, on all cores, and then memory-mapped from the cache.

    Args:
        option: the text after the colon of the set's name, "" without one.
        asked: the size that the option means.
        draw: renders images; see `Draw`.
        revision: increment when `draw` gives other images; part of the cache key.
        made_of: identifies what else the pixels depend on (font files, versions of libraries); part of the cache key.
        groups_N: group of each image, in the order (instance, class), see `ImageSet.groups_N`; None without groups.
    """
    total = asked.size["train"] if split == "train" else asked.size["test"]
    full = f"{name}:{option}" if option else name
    pieces = cache.Chunks(
        shape=(total, asked.side, asked.side, channels),
        dtype="uint8",
        make=partial(_pieces, draw, asked.classes, total, split, asked.side, f"drawing {full}, {split}"),
    )
    of = f"{made_of}-" if made_of else ""
    key = f"{name}-r{revision}-{split}-{of}{asked.classes}x{total // asked.classes}-{asked.side}px"
    return ImageSet(
        name=full,
        split=split,
        images_NHWC=cache.arrays(key, lambda: {"images": pieces})["images"],
        labels_N=np.arange(total, dtype=np.int64) % asked.classes,
        class_names=class_names,
        kind="rendered",
        source="drawn",
        groups_N=groups_N,
    )


def numbered(noun: str, asked: Asked) -> tuple[str, ...]:
    """Return names for classes that have no names of their own: for the noun "system", "system 0", "system 1", …."""
    return tuple(f"{noun} {number}" for number in range(asked.classes))


def _pieces(draw: Draw, classes: int, total: int, split: str, side: int, what: str) -> Iterator[np.ndarray]:
    """Yield all images of a split in pieces, uint8 (M, side, side, C), in the order (instance, class), so that any
    first part of them holds all classes equally.

    Args:
        total: number of images of the split.
        what: text of the progress display.
    """
    progress = Progress(what, total)
    parts = (np.arange(start, min(start + IMAGES_PER_PIECE, total)) for start in range(0, total, IMAGES_PER_PIECE))
    work = partial(draw, classes=classes, split=split, size=side)
    for piece in map(work, parts) if total <= MAX_IMAGES_OF_ONE_PROCESS else _ordered(work, parts):
        yield piece
        progress.step(len(piece))


def _ordered(work: Draw, parts: Iterator[np.ndarray]) -> Iterator[np.ndarray]:
    """Yield `work(part)` for all parts, in order. Processes on all cores compute them, at most 2 parts per core ahead,
    which limits memory."""
    with ProcessPoolExecutor(cores(), mp_context=get_context("spawn"), initializer=end_with_starter) as pool:
        waiting: deque[Future[np.ndarray]] = deque(pool.submit(work, p) for p in itertools.islice(parts, 2 * cores()))
        while waiting:
            yield waiting.popleft().result()
            if (following := next(parts, None)) is not None:
                waiting.append(pool.submit(work, following))
