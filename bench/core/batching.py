"""Evaluation in batches that fit: where memory runs out they are halved, and the images that failed are done again."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

BATCH = 256  # images at a time, where memory allows


class InBatches:
    """Computes something for all of a number of images, some of them at a time; the last, smaller batch too.

    Only for what finds the same for an image whatever else is in its batch, as networks in test mode do, within
    rounding.

    Args:
        batch: images at a time. As an attribute: what fits, as far as is known; it never grows again.
    """

    def __init__(self, batch: int = BATCH, *, device: str) -> None:
        self.batch, self.device = batch, device
        self.shrunk = False  # memory ran out

    def __call__(self, images: int, work: Callable[[slice], T]) -> list[T]:
        """What `work` returns for each batch, in order. It must change nothing before it succeeds.

        Raises:
            RuntimeError, MemoryError: not even one image at a time fits.
        """
        found: list[T] = []
        start = 0
        while start < images:
            stop = min(start + self.batch, images)
            try:
                found.append(work(slice(start, stop)))
                start = stop
                continue
            except (RuntimeError, MemoryError) as error:
                from bench.cost.timing import is_out_of_memory, release

                if stop - start == 1 or not is_out_of_memory(error):
                    raise
            # outside the handler the traceback, which holds the activations, is gone
            self.batch, self.shrunk = (stop - start) // 2, True
            release(self.device)
        return found
