"""Device selection, out-of-memory detection, and evaluation in batches that fit. Torch is imported only if needed."""

from __future__ import annotations

import contextlib
import gc
import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from bench.core.errors import UserError

T = TypeVar("T")

BATCH = 256  # images at a time, where memory allows
OOM_TEXTS = (
    "out of memory", "can't allocate memory", "cannot allocate memory", "not enough memory",
    "alloc_failed",  # cuBLAS and cuDNN without room for their workspaces
)  # fmt: skip


def resolve_device(wanted: str) -> str:
    """ "cpu" or "cuda" for an option's value. Torch is imported only where there is an NVIDIA driver.

    Raises:
        UserError: a device that is not there.
    """
    if wanted not in ("auto", "cpu", "cuda"):
        raise UserError(f"Unknown device {wanted!r}.", "Allowed: auto, cpu, cuda.")
    if wanted == "cpu" or (wanted == "auto" and not Path("/dev/nvidiactl").exists()):
        return "cpu"
    import torch

    if torch.cuda.is_available():
        return "cuda"
    if wanted == "cuda":
        raise UserError("No usable CUDA device on this machine.", "Use --device cpu, or check the driver.")
    return "cpu"


def free_memory(device: str) -> int:
    """Bytes that are free on a device: of a CPU, in this machine's memory, as far as the system tells."""
    if device.startswith("cuda"):
        import torch

        return torch.cuda.mem_get_info()[0]
    with contextlib.suppress(OSError, ValueError, StopIteration):
        lines = Path("/proc/meminfo").read_text().splitlines()
        return 1024 * int(next(line for line in lines if line.startswith("MemAvailable:")).split()[1])
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def synchronise(device: str) -> None:
    """Wait until the device has finished all submitted work."""
    if device.startswith("cuda"):
        import torch

        torch.cuda.synchronize()


def release(device: str) -> None:
    """Release cached memory."""
    gc.collect()
    if device.startswith("cuda"):
        import torch

        torch.cuda.empty_cache()


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an exception says that memory ran out, on any device."""
    import torch

    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    if not isinstance(error, RuntimeError):
        return False
    if any(text in str(error).lower() for text in OOM_TEXTS):
        return True
    earlier = error.__context__  # a recording of a CUDA graph that memory ends fails again when it is closed
    return earlier is not None and is_out_of_memory(earlier)


class InBatches:
    """Computes something for all of a number of images, a batch at a time; the last, smaller batch too. Where memory
    runs out the batch is halved, and the images that failed are done again.

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
                if stop - start == 1 or not is_out_of_memory(error):
                    raise
            # outside the handler the traceback, which holds the activations, is gone
            self.batch, self.shrunk = (stop - start) // 2, True
            release(self.device)
        return found
