"""Device selection, timed calls, out-of-memory detection, and evaluation in batches that fit into memory. Torch is
imported only when it is needed.

A device is named as in torch, without or with a number: "cpu", "cuda", "cuda:1". GPUs with AMD's ROCm are "cuda" too.
Intel's GPUs are "xpu" and Apple's are "mps"; they are used on request only, because nothing has been measured on one.
`module` returns torch's functions for any kind of GPU.
"""

from __future__ import annotations

import contextlib
import gc
import os
import platform
import subprocess
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from bench.core.errors import UserError

T = TypeVar("T")

BATCH = 256  # images per batch, if memory allows
OOM_TEXTS = (
    "out of memory",
    "can't allocate memory",
    "cannot allocate memory",
    "not enough memory",
    "alloc_failed",  # cuBLAS and cuDNN, when there is no memory for their workspaces
    "cublas_status_not_initialized",  # cuBLAS, when there is no memory for its own context
    "novalidchoiceserror",  # torch's max-autotune, when no kernel could be timed, not even torch's own
)
KINDS = ("auto", "cpu", "cuda", "xpu", "mps")
DRIVERS = {"/dev/nvidiactl": "an NVIDIA driver", "/dev/dxg": "a GPU under WSL", "/dev/kfd": "an AMD driver"}
MPS_CONTROL = "nvidia-cuda-mps-control"  # the daemon that lets kernels of several processes run side by side
VISIBLE_VARIABLES = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")  # NVIDIA and AMD both understand the first


class DeviceChoice(NamedTuple):
    """A device that was chosen.

    Attributes:
        device: one of KINDS except "auto".
        reason: for "cuda", the name of the GPU; for other devices, why the device was chosen, in words; "" if the user
            asked for it.
    """

    device: str
    reason: str


def meta() -> Any:
    """Return `torch.device("meta")`, under which modules are built with shapes but without values.

    Libraries of networks import torch's compiler, and torch 2.8 cannot import it under the meta device. Hence, with a
    torch before 2.9, the compiler is imported here first.
    """
    import torch

    if torch.torch_version.TorchVersion(torch.__version__) < "2.9":
        import torch._dynamo
    return torch.device("meta")


def find_device(wanted: str) -> DeviceChoice:
    """Return the device `wanted`, one of KINDS. "auto" stands for a CUDA or ROCm GPU if torch can use one, else for the
    CPU; on a machine without the driver of such a GPU, it does not import torch.

    Raises:
        UserError: the device is unknown, or cannot be used on this machine.
    """
    if wanted not in KINDS:
        raise UserError(f"Unknown device {wanted!r}.", f"Allowed: {', '.join(KINDS)}.")
    drivers = [name for path, name in DRIVERS.items() if Path(path).exists()]
    apple = platform.system() == "Darwin" and platform.machine() == "arm64"
    if wanted == "cpu":
        return DeviceChoice("cpu", "")
    if wanted == "auto" and not drivers:
        return DeviceChoice(
            "cpu", "an Apple GPU is used with --device mps only" if apple else "no driver of a GPU was found"
        )
    import torch

    if wanted in ("xpu", "mps"):
        if module(wanted).is_available():
            return DeviceChoice(wanted, "")
        maker = "Apple" if wanted == "mps" else "Intel"
        raise UserError(f"No usable {maker} GPU on this machine.", "Use --device cpu.")
    if torch.cuda.is_available():
        count, name = torch.cuda.device_count(), torch.cuda.get_device_name()
        return DeviceChoice("cuda", f"{count} × {name}" if count > 1 else name)
    built = torch.version.cuda or torch.version.hip
    why = "torch cannot use it; check the driver" if built else f"torch {torch.__version__} was built without CUDA"
    if wanted == "cuda":
        raise UserError(
            "No usable CUDA device on this machine.",
            f"Use --device cpu; {why if drivers else 'no driver of a GPU was found'}.",
        )
    return DeviceChoice("cpu", f"{drivers[0]} was found, but {why}")


def check_usable(device: str) -> None:
    """Raise an error if this machine cannot compute on a device. A device with a number, such as "cuda:1", also becomes
    torch's current device, on which calls that name no device number work (streams, graphs, the device's name).

    Raises:
        UserError: the device cannot be used; the message says why.
    """
    import torch

    try:
        if device.startswith("cuda:"):
            torch.cuda.set_device(device)
        torch.zeros(1, device=device).item()  # .item() fails on "meta", which is a device but holds no values
    except (RuntimeError, AssertionError) as error:
        raise UserError(f"Device {device!r} cannot be used: {error}.", "Use --device cpu.") from error


def accelerators(device: str) -> tuple[str, ...]:
    """Return the ids of all CUDA devices that this process may use, as they are written in CUDA_VISIBLE_DEVICES; an
    empty tuple if `device` is of another kind. If that variable is set already, its ids are returned. Each part of a
    divided GPU (MIG) counts as one device, and so does each undivided GPU.
    """
    if not device.startswith("cuda"):
        return ()
    inherited = next((value for name in VISIBLE_VARIABLES if (value := os.environ.get(name))), None)
    if inherited:
        return tuple(part.strip() for part in inherited.split(","))
    try:
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=20).stdout
    except (OSError, subprocess.SubprocessError):
        listed = ""
    ids = [line.split("UUID: ")[1].rstrip(") ") for line in listed.splitlines() if "UUID: " in line]
    if any(name.startswith("MIG-") for name in ids):  # a divided GPU is listed above its parts and is left out
        below = [*ids[1:], ""]
        return tuple(a for a, b in zip(ids, below, strict=True) if a.startswith("MIG-") or not b.startswith("MIG-"))
    import torch

    return tuple(map(str, range(torch.cuda.device_count())))


def place(devices: tuple[str, ...], worker: int, *, ranks: int = 1) -> tuple[str, ...]:
    """Return the devices of the worker with index `worker`, one for each of its ranks (processes). Devices are assigned
    round-robin, so workers share them if there are too few. Without devices, return ()."""
    return tuple(devices[(worker * ranks + rank) % len(devices)] for rank in range(ranks)) if devices else ()


def sharing(device: str, processes: int) -> int:
    """Return the largest number of processes on one device when `place` distributes `processes` processes over all
    devices; 1 on a CPU."""
    return -(-processes // len(devices)) if (devices := accelerators(device)) else 1


def module(device: str) -> Any:
    """Return torch's module for the kind of a device: torch.cuda, torch.xpu or torch.mps."""
    import torch

    return torch.get_device_module(device.partition(":")[0])


def device_name(device: str) -> str | None:
    """Return the product name of a GPU; None for a CPU, and for an Apple GPU, which has no name of its own."""
    return None if device.startswith(("cpu", "mps")) else module(device).get_device_name(device)


def generators(device: str) -> list[Any]:
    """Return torch's random generators of the CPU and, if it is another device, of `device`. Seeding these avoids
    `torch.manual_seed`, which visits every kind of device and takes 0.3 ms."""
    import torch

    place, own = torch.device(device), [torch.default_generator]
    if place.type == "mps":
        own.append(torch.mps._get_default_mps_generator())
    elif place.type != "cpu":
        at = module(device).current_device() if place.index is None else place.index
        own.append(module(device).default_generators[at])
    return own


SHARED = 0.9  # fraction of a GPU's memory that its processes may allocate together; CUDA keeps the rest
_limits: dict[str, int] = {}  # device -> bytes that this process may allocate there


def share_memory(device: str, processes: int) -> None:
    """Limit this process to its part of the memory of a CUDA GPU that `processes` processes share. Without a limit,
    which data stay on the GPU and how a batch is divided would depend on which process started first."""
    if processes > 1 and device.startswith("cuda"):
        part = SHARED / processes
        module(device).set_per_process_memory_fraction(part)
        _limits[device] = int(part * module(device).mem_get_info(device)[1])


def free_memory(device: str) -> int:
    """Return the bytes that this process may still allocate on a device. For a CPU or an Apple GPU, which uses the
    machine's memory, return the available memory of the machine, or its total memory if the system states no other."""
    if not device.startswith(("cpu", "mps")):
        free: int = module(device).mem_get_info(device)[0]
        return min(free, _limits[device] - module(device).memory_reserved(device)) if device in _limits else free
    with contextlib.suppress(OSError, ValueError, StopIteration):
        lines = Path("/proc/meminfo").read_text().splitlines()
        return 1024 * int(next(line for line in lines if line.startswith("MemAvailable:")).split()[1])
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def to_device(tensor: Any, device: str) -> Any:
    """Return a copy of a CPU tensor on a device, without waiting until the copy is complete. On a CUDA or Intel GPU the
    copy is made from pinned memory, which makes this possible."""
    return (tensor.pin_memory() if device.startswith(("cuda", "xpu")) else tensor).to(device, non_blocking=True)


def uploaded(array: Any, device: str) -> Any:
    """Return a copy of an array, which may be a read-only memory map, as a tensor on a device.

    On a CUDA or Intel GPU the array is copied once into pinned memory, and from there to the device while the device
    still computes with earlier data; the CPU runs at most `UNDER_WAY` copies ahead.
    """
    import torch

    streams = module(device) if device.startswith(("cuda", "xpu")) else None
    if streams is not None:
        if device not in _uploads:
            _uploads[device] = streams.Stream(), deque()
        copies, before = _uploads[device]
        own = streams.current_stream()
        before.append(own.record_event())
        if len(before) > UNDER_WAY:
            before.popleft().synchronize()
    dtype = torch.from_numpy(array[:0].copy()).dtype
    held = torch.empty(array.shape, dtype=dtype, pin_memory=streams is not None)
    held.numpy()[...] = array
    if streams is None:
        return held.to(device, non_blocking=True)
    with streams.stream(copies):
        moved = held.to(device, non_blocking=True)
    own.wait_stream(copies)
    moved.record_stream(own)
    return moved


UNDER_WAY = 2  # most copies to a GPU that may be unfinished when another is started
_uploads: dict[str, tuple[Any, deque[Any]]] = {}  # device -> (stream for copies, events of the work before each copy)


def synchronise(device: str) -> None:
    """Wait until the device has finished all submitted work."""
    if device.startswith("mps"):
        module(device).synchronize()
    elif not device.startswith("cpu"):
        module(device).synchronize(device)


DAMAGED: set[str] = set()
"""Devices on which this process can compute no more: a failed recording of a CUDA graph left the device's allocator in
the state of recording (torch before 2.12)."""
BEFORE_RELEASE: list[Callable[[], None]] = []
"""Functions that `release` calls first. Each one drops objects that hold device memory and can be made again."""


def release(device: str) -> None:
    """Free memory of a device: call the functions in `BEFORE_RELEASE`, which drop objects that can be made again, and
    empty torch's cache of unused memory."""
    for drop in BEFORE_RELEASE:
        drop()
    gc.collect()
    if not device.startswith("cpu"):
        module(device).empty_cache()


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an exception means that memory ran out, on any device."""
    import torch

    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    if not isinstance(error, RuntimeError):
        return False
    if any(text in str(error).lower() for text in OOM_TEXTS):
        return True
    earlier = error.__context__  # when memory runs out while a CUDA graph is recorded, closing the graph fails again
    return earlier is not None and is_out_of_memory(earlier)


def is_lost(device: str) -> bool:
    """Return whether a device is lost to this process: after an illegal memory access or an uncorrectable error, every
    call to a GPU fails until the process ends."""
    if device.startswith("cpu") or device in DAMAGED:
        return device in DAMAGED
    import torch

    try:
        return torch.zeros(1, device=device).item() != 0.0
    except RuntimeError as error:
        return not is_out_of_memory(error)


class OutOfMemory(Exception):
    """Raised when a workload does not fit into the device's memory, after what it had allocated was released."""


def timed(call: Callable[[], object], *, device: str, calls: int = 1) -> float:
    """Return the total seconds that `calls` calls of the function `call` take. The device is synchronised only before
    the first call and after the last.

    Raises:
        OutOfMemory: memory ran out; this replaces the device's own exception.
    """
    try:
        synchronise(device)
        start = time.perf_counter()
        for _ in range(calls):
            call()
        synchronise(device)
        return time.perf_counter() - start
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
    # outside the handler, because the exception's traceback keeps the tensors alive
    release(device)
    raise OutOfMemory


class InBatches:
    """Calls a function for a number of images, one batch at a time. If memory runs out, the batch size is halved, and
    the batch that failed is repeated.

    This is only valid if the result for an image does not depend on the rest of its batch, up to rounding, as with
    networks in evaluation mode.

    Args:
        batch: images per batch to begin with. The attribute `batch` is the current size: it is halved when memory runs
            out, and never grows.
    """

    def __init__(self, batch: int = BATCH, *, device: str) -> None:
        self.batch, self.device = batch, device
        self.shrunk = False  # whether memory ran out at least once

    def __call__(self, images: int, work: Callable[[slice], T]) -> list[T]:
        """Return the result of `work` for each batch, in order. A call of `work` may be repeated, so a call that fails
        must leave nothing behind.

        Args:
            images: number of images.
            work: (slice of the image numbers, which is the batch) -> result.

        Raises:
            RuntimeError, MemoryError: not even one image at a time fits, or `work` failed for another reason.
        """
        results: list[T] = []
        start = 0
        while start < images:
            stop = min(start + self.batch, images)
            try:
                results.append(work(slice(start, stop)))
                start = stop
                continue
            except (RuntimeError, MemoryError) as error:
                if stop - start == 1 or not is_out_of_memory(error):
                    raise
            # outside the handler, because the exception's traceback keeps the activations alive
            self.batch, self.shrunk = (stop - start) // 2, True
            release(self.device)
        return results
