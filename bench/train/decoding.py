"""Measure how fast encoded images are decoded by the code with which training reads them (`bench.train.reading`)."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress

import numpy as np
import torch

from bench.core.errors import UserError
from bench.data.decode import Storage, Unreadable, facts_of
from bench.data.stream import put
from bench.train.batches import crop_boxes
from bench.train.reading import resize


def decoded_per_second(files: Sequence[bytes], *, size: int, channels: int, crop: float) -> float:
    """Return how many of these images one CPU core decodes per second; 0 if none can be decoded.

    Args:
        files: the bytes of encoded images, such as JPEG files.
        size: pixels per side to which images are resized.
        channels: 1 or 3.
        crop: smallest fraction of an image's area that a random crop keeps; 0 for no crops.
    """
    rng, spent, threads = np.random.default_rng(0), list[float](), torch.get_num_threads()
    storage, out_SSC = Storage(size=size, channels=channels), np.empty((size, size, channels), dtype=np.uint8)
    torch.set_num_threads(1)  # a reader process has one thread too
    for data in files:
        with suppress(Unreadable, UserError, OSError, ValueError):
            height, width, _, orientation = facts_of(data, name="an image", as_published=False)
            box = crop_boxes(rng, number=1, height=height, width=width, least=crop)[:, 0].tolist() if crop else None
            started = time.thread_time()
            put(data, box, name="an image", out_SSC=out_SSC, storage=storage, resize=resize, orientation=orientation)
            spent.append(time.thread_time() - started)
    torch.set_num_threads(threads)
    return len(spent) / sum(spent) if spent else 0.0
