"""Pixels of training images that do not lie on the device: gathered from a memory map, or decoded, ahead of the step.

Which images, and which part of each, is said by the process that trains. Others read them, in parts of a batch, through
torch's DataLoader: they are handed out and collected in order, so a batch does not depend on how many readers there
are. What is under way is bounded in bytes.
"""

from __future__ import annotations

import atexit
import math
import os
import signal
import time
import weakref
from collections.abc import Callable, Iterator

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from bench.core.environment import cores
from bench.core.errors import UserError
from bench.data.image_set import AHEAD_BYTES, EncodedImages, Images

PART = 32  # images that a reader reads at a time
SHARED_MEMORY = "/dev/shm"  # through which readers hand pixels over; containers often have 64 MB of it
MOST_WORKERS = 16

Request = tuple[np.ndarray, np.ndarray | None]  # positions of images (B,), and the box of each (4, B)


def resize(pixels_HWC: np.ndarray, out_SSC: np.ndarray) -> None:
    """uint8, bilinear, pixels taken as areas, no low-pass. A level more or less is left to the processor's kind."""
    x_1CHW = torch.from_numpy(np.array(pixels_HWC, order="C")).permute(2, 0, 1)[None]
    out_1CSS = torch.from_numpy(out_SSC).permute(2, 0, 1)[None]
    torch.ops.aten.upsample_bilinear2d.out(x_1CHW, list(out_SSC.shape[:2]), False, None, None, out=out_1CSS)


class _Pixels(Dataset):
    """request -> uint8 (B, H, W, C); an error of the user's as an object, for the other process to raise."""

    def __init__(self, images: Images) -> None:
        self.images = images

    def __getitem__(self, request: Request) -> Tensor | UserError:
        rows_B, boxes_4B = request
        try:
            if isinstance(self.images, EncodedImages):
                return torch.from_numpy(self.images.read(rows_B, boxes_4B, resize=resize))
            return torch.from_numpy(np.ascontiguousarray(self.images[rows_B]))
        except UserError as error:
            return error


_readers: weakref.WeakSet[Reader] = weakref.WeakSet()


@atexit.register
def _end_readers() -> None:
    """Before Python waits for its child processes, which only end when they are told to."""
    for reader in list(_readers):
        reader.close()


class Reader:
    """step -> pixels of this rank's share of the batch, uint8 (B, H, W, C) on the device.

    Args:
        images: memory-mapped or encoded.
        request: (step) -> what to read. It is called for steps that come, and again after a jump.
        workers: processes that read; 0 reads in this one, when it is asked to. None for one per core that this rank
            has to itself, but for one.
        ranks: processes that share the cores.
    """

    def __init__(
        self,
        images: Images,
        *,
        request: Callable[[int], Request],
        device: str,
        workers: int | None = None,
        ranks: int = 1,
    ) -> None:
        self.images, self.request, self.device = images, request, torch.device(device)
        self.workers = _workers(ranks) if workers is None else workers
        self.waited = 0.0  # seconds
        self._next: int | None = None
        self._parts: Iterator[Tensor | UserError] | None = None
        self._staged: Tensor | None = None
        self._copies = torch.cuda.Stream() if self.device.type == "cuda" else None
        _readers.add(self)

    def close(self) -> None:
        """End the processes that read."""
        self._parts = self._staged = None

    def __call__(self, step: int) -> Tensor:
        """Raises UserError where an image cannot be read."""
        if step != self._next or self._parts is None:
            self._start(step)
        pixels = self._staged if self._staged is not None else self._collect()
        self._next, self._staged = step + 1, None
        if self._copies is not None:  # the next batch is copied while this one is computed with
            torch.cuda.current_stream().wait_stream(self._copies)
            pixels.record_stream(torch.cuda.current_stream())
            self._staged = self._collect()
        return pixels

    def _start(self, step: int) -> None:
        self._count = len(self.request(step)[0])  # as many at every step
        each = math.prod(self.images.shape[1:])  # bytes
        room = AHEAD_BYTES
        if self.workers and os.path.isdir(SHARED_MEMORY):
            free = os.statvfs(SHARED_MEMORY)
            room = min(room, free.f_bavail * free.f_frsize // 2)
        part = max(1, min(PART, self._count, room // (each * 2 * max(1, self.workers))))
        wanted = -(-2 * self._count // part)  # two batches
        most = max(2 * self.workers, room // (each * part))
        factor = max(2, min(wanted, most) // self.workers) if self.workers else None
        self.close()
        self._parts = iter(
            DataLoader(
                _Pixels(self.images),
                sampler=_Requests(self.request, start=step, part=part),
                batch_size=None,
                num_workers=self.workers,
                prefetch_factor=factor,
                pin_memory=self.device.type == "cuda",
                worker_init_fn=_ignore_signals,
                generator=torch.Generator(),
            )
        )

    def _collect(self) -> Tensor:
        """The parts of the next batch, one after another."""
        assert self._parts is not None
        started = time.perf_counter()
        found, place = list[Tensor](), 0
        while place < self._count:
            part = next(self._parts)
            if not isinstance(part, Tensor):
                self.close()
                raise part
            place += len(part)
            found.append(part)
        self.waited += time.perf_counter() - started
        if self._copies is None:
            return torch.cat(found)
        with torch.cuda.stream(self._copies):
            pixels = torch.empty((self._count, *found[0].shape[1:]), dtype=torch.uint8, device=self.device)
            for part, into in zip(found, pixels.split([len(part) for part in found]), strict=True):
                into.copy_(part, non_blocking=True)
        return pixels


class _Requests:
    """All requests from a step on, in parts."""

    def __init__(self, request: Callable[[int], Request], *, start: int, part: int) -> None:
        self.request, self.step, self.part = request, start, part

    def __iter__(self) -> Iterator[Request]:
        step = self.step
        while True:
            rows_B, boxes_4B = self.request(step)
            for first in range(0, len(rows_B), self.part):
                part = slice(first, first + self.part)
                yield rows_B[part], None if boxes_4B is None else boxes_4B[:, part]
            step += 1


def _workers(ranks: int) -> int:
    return max(1, min(MOST_WORKERS, cores() // ranks - 1))


def _ignore_signals(_: int) -> None:
    """A signal to the whole group is for the process that trains, which saves first; readers end when it does."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
