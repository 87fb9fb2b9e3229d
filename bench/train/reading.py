"""Read ahead the pixels of training images that are not held on the device, from a memory map or by decoding.

The process that trains decides which images, and which part of each, are read. Reader processes read them, in parts of
a batch, through torch's DataLoader. Parts are handed out and collected in order, so a batch does not depend on the
number of readers. Pixels are written into slots ("places") of one block of shared memory, which holds all parts that
may be under way: allocating shared memory for each part would take longer than copying it.
"""

from __future__ import annotations

import atexit
import math
import multiprocessing
import os
import signal
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.context import BaseContext

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from bench.core.errors import UserError
from bench.core.subprocesses import end_with_starter
from bench.data.image_set import AHEAD_BYTES, EncodedImages, Images
from bench.train.ranks import here

IMAGES_PER_READ = 32  # images that a reader reads at a time
SHARED_MEMORY = "/dev/shm"  # readers pass pixels through this file system; containers often have 64 MB of it
MOST_WORKERS = 16

Request = tuple[np.ndarray, np.ndarray | None]  # positions of images (B,), and the box to cut out of each (4, B)
Part = tuple[int, Request]  # (place in the shared memory, what to read into it)
Parts = Iterator[tuple[int, int] | UserError]  # (place, number of images) of each part, in order


def resize(pixels_HWC: np.ndarray, out_SSC: np.ndarray) -> None:
    """Resize uint8 pixels (H, W, C) into `out_SSC`, of S pixels per side: bilinear, with pixels as areas (not aligned
    corners) and no low-pass filter.

    Values may differ by one level between kinds of processors.
    """
    x_1CHW = torch.from_numpy(np.array(pixels_HWC, order="C")).permute(2, 0, 1)[None]
    out_1CSS = torch.from_numpy(out_SSC).permute(2, 0, 1)[None]
    torch.ops.aten.upsample_bilinear2d.out(x_1CHW, list(out_SSC.shape[:2]), False, None, None, out=out_1CSS)


class _Pixels(Dataset):
    """A torch Dataset that is indexed by a part of a batch: it writes the part's pixels to a place in shared memory and
    returns (place, number of images). A UserError is returned as an object, for the training process to raise.

    Args:
        places: shared memory, uint8 (places, images of a part, H, W, C).
    """

    def __init__(self, images: Images, places: Tensor) -> None:
        self.images, self.places = images, places

    def __getitem__(self, part: Part) -> tuple[int, int] | UserError:
        place, (rows_B, boxes_4B) = part
        out_BHWC = self.places[place, : len(rows_B)].numpy()
        try:
            if isinstance(self.images, EncodedImages):
                self.images.read(rows_B, boxes_4B, out_BHWC=out_BHWC, resize=resize)
            else:
                out_BHWC[:] = self.images[rows_B]
        except UserError as error:
            return error
        return place, len(rows_B)


_readers: weakref.WeakSet[Reader] = weakref.WeakSet()


@atexit.register
def _end_readers() -> None:
    """Close all readers at exit, before Python waits for its child processes, because reader processes end only when
    they are told to."""
    for reader in list(_readers):
        reader.close()


class Reader:
    """Reads images ahead. A call with a step returns the pixels of this rank's part of the batch: uint8 (B, H, W, C) on
    the device.

    Args:
        images: memory-mapped or encoded images.
        request: step -> `Request`, what to read. It is called for steps ahead; after a jump to another step it is
            called again from there.
        workers: number of reader processes; 0 reads in this process, on demand. None: one fewer than this process has
            threads, which are its part of the machine's cores.

    Attributes:
        waited: seconds that calls spent waiting for images to be read.
    """

    def __init__(
        self,
        images: Images,
        *,
        request: Callable[[int], Request],
        device: str,
        workers: int | None = None,
    ) -> None:
        self.images, self.request, self.device = images, request, torch.device(device)
        self.workers = _workers() if workers is None else workers
        self.waited = 0.0  # seconds
        self._next: int | None = None
        self._parts: Parts | None = None
        self._places: Tensor | None = None
        self._staged: Tensor | None = None
        self._copies = torch.cuda.Stream() if self.device.type == "cuda" else None
        _readers.add(self)

    def close(self) -> None:
        """End the reader processes."""
        self._parts = self._places = self._staged = self._next = None

    def __call__(self, step: int) -> Tensor:
        """Return the pixels for a step, uint8 (B, H, W, C) on the device.

        Raises:
            UserError: an image cannot be read.
        """
        if step != self._next:
            self._start(step)
        pixels = self._staged if self._staged is not None else self._collect()
        self._next, self._staged = step + 1, None
        if self._copies is not None:  # copy the next batch to the device while this one is computed with
            torch.cuda.current_stream().wait_stream(self._copies)
            pixels.record_stream(torch.cuda.current_stream())
            self._staged = self._collect()
        return pixels

    def _start(self, step: int) -> None:
        self._count = len(self.request(step)[0])  # the same at every step
        each = math.prod(self.images.shape[1:])  # bytes of an image
        room = AHEAD_BYTES
        if self.workers and os.path.isdir(SHARED_MEMORY):
            free = os.statvfs(SHARED_MEMORY)
            room = min(room, free.f_bavail * free.f_frsize // (2 * here()))
        part = max(1, min(IMAGES_PER_READ, self._count, room // (each * 2 * max(1, self.workers))))
        wanted = -(-2 * self._count // part)  # parts of two batches
        most = max(2 * self.workers, room // (each * part))
        factor = max(2, min(wanted, most) // self.workers) if self.workers else None
        self.close()
        # One more place than parts under way: the next part is handed out before the one just read is copied.
        places = 1 + self.workers * (factor or 0)
        self._places = torch.empty((places, part, *self.images.shape[1:]), dtype=torch.uint8)
        if self.workers:
            self._places.share_memory_()
        self._parts = iter(
            DataLoader(
                _Pixels(self.images, self._places),
                sampler=_Requests(self.request, start=step, part=part, places=places),
                batch_size=None,
                num_workers=self.workers,
                prefetch_factor=factor,
                worker_init_fn=_belong_to_training,
                multiprocessing_context=start_context() if self.workers else None,
                generator=torch.Generator(),
            )
        )

    def _collect(self) -> Tensor:
        """Return the pixels of the next batch, uint8 (B, H, W, C) on the device, joined from its parts."""
        assert self._parts is not None and self._places is not None
        shape, number = (self._count, *self.images.shape[1:]), 0
        if self._copies is None:  # NumPy's memory comes in large pages, which is faster
            pixels = torch.from_numpy(np.empty(shape, dtype=np.uint8))
        else:
            pixels = torch.empty(shape, dtype=torch.uint8, pin_memory=True)
        while number < self._count:
            with self._waiting():
                part = next(self._parts)
            if isinstance(part, UserError):
                self.close()
                raise part
            place, images = part
            pixels[number : number + images] = self._places[place, :images]
            number += images
        if self._copies is None:
            return pixels
        with torch.cuda.stream(self._copies):
            return pixels.to(self.device, non_blocking=True)

    @contextmanager
    def _waiting(self) -> Iterator[None]:
        started = time.perf_counter()
        yield
        self.waited += time.perf_counter() - started


class _Requests:
    """Endless iterator over the parts of batches, each with its place in shared memory.

    Args:
        request: step -> `Request` of the whole batch.
        start: first step.
        part: number of images of a part.
        places: number of places in shared memory, which parts take in turn.
    """

    def __init__(self, request: Callable[[int], Request], *, start: int, part: int, places: int) -> None:
        self.request, self.step, self.part, self.places = request, start, part, places

    def __iter__(self) -> Iterator[Part]:
        step, number = self.step, 0
        while True:
            rows_B, boxes_4B = self.request(step)
            for first in range(0, len(rows_B), self.part):
                part = slice(first, first + self.part)
                yield number % self.places, (rows_B[part], None if boxes_4B is None else boxes_4B[:, part])
                number += 1
            step += 1


def _workers() -> int:
    return max(1, min(MOST_WORKERS, torch.get_num_threads() - 1))


def start_context() -> BaseContext:
    """Return the multiprocessing context that starts reader processes: Python's fork server if there is one, else
    spawning.

    A fork of the training process would hold locks of its threads, and its state of the GPU; Python 3.14 no longer
    forks by default.
    """
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    from multiprocessing import forkserver

    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])  # so that torch is imported once for all readers
    # SIGTERM to the whole process group is for the training process: readers block it, and end with their server
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    try:
        forkserver.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return context


def _belong_to_training(_: int) -> None:
    """Set up a reader process: it ends when the training process ends, for whatever reason, and ignores SIGINT and
    SIGTERM. These are for the training process, which saves a checkpoint before it ends."""
    end_with_starter()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
