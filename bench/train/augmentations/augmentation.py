"""The class of an augmentation that a recipe can name, in addition to shift, flip and crop, which are fields of the
recipe."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from bench.core.seeds import stream
from bench.study.cell import Recipe
from bench.train.parts import Part

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Augmentation(Part):
    """An augmentation of training images. A file in this folder exports one as `AUGMENTATION`.

    Attributes:
        pixels: (recipe, image_HWC as uint8) -> the changed image, for augmentations of single images; else None. It is
            called before flips and crops, with random generators seeded by (seed, step, place in the batch).
        mixes: (recipe, x_BCHW in [-1, 1], labels_B, number of classes) -> (x_BCHW, targets_BK), for augmentations that
            mix the images of a batch; else None. targets_BK are each image's fractions of the classes. It is called
            after everything else, with random generators seeded by (seed, step).
    """

    pixels: Callable[[Recipe, np.ndarray], np.ndarray] | None = None
    mixes: Callable[[Recipe, Tensor, Tensor, int], tuple[Tensor, Tensor]] | None = None


@contextlib.contextmanager
def random_stream(seed: int, *purpose: str | int) -> Iterator[None]:
    """Inside the `with` block, Python's `random` and `numpy.random` are seeded by (seed, purpose); afterwards their
    previous states are restored. Libraries such as timm take random numbers from these global generators.

    Args:
        purpose: words and numbers that make the random numbers different for each use of a seed, such as ("mix", step).
    """
    python, numpy = random.getstate(), np.random.get_state()
    chosen = stream(seed, *purpose)
    random.seed(chosen)
    np.random.seed(chosen % 2**32)
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)
