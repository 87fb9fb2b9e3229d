"""An augmentation as a recipe names it, beside shift, flip and crop, which are fields of the recipe."""

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
    """A file in this folder exports one as `AUGMENTATION`. Either function may be missing.

    Attributes:
        pixels: (recipe, image_HWC as uint8) -> the image changed, called within its own random stream, one for each
            (seed, step, place in the batch), before flips and crops.
        mixes: (recipe, x_BCHW in [-1, 1], labels_B, number of classes) -> (x_BCHW, targets_BK), of the whole batch,
            called within its own random stream, one for each (seed, step), after all others.
    """

    pixels: Callable[[Recipe, np.ndarray], np.ndarray] | None = None
    mixes: Callable[[Recipe, Tensor, Tensor, int], tuple[Tensor, Tensor]] | None = None


@contextlib.contextmanager
def random_stream(seed: int, *purpose: str | int) -> Iterator[None]:
    """Python's and NumPy's own random numbers come from a stream inside, and go on afterwards as if nothing had been
    drawn: libraries such as timm draw from these."""
    python, numpy = random.getstate(), np.random.get_state()
    chosen = stream(seed, *purpose)
    random.seed(chosen)
    np.random.seed(chosen % 2**32)
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)
