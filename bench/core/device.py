"""Device selection, timed calls, out-of-memory detection, evaluation in batches that fit. Torch is imported if needed.

AMD's ROCm answers as "cuda". Intel's GPUs are "xpu" and Apple's "mps": on request only, for nothing was measured on
one. All of them are asked through `module`.
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

BATCH = 256  # images at a time, where memory allows
OOM_TEXTS = (
    "out of memory",
    "can't allocate memory",
    "cannot allocate memory",
    "not enough memory",
    "alloc_failed",  # what cuBLAS and cuDNN say where there is no room for their workspaces
    "cublas_status_not_initialized",  # and cuBLAS where there is none for itself
    "novalidchoiceserror",  # and max-autotune where no kernel could be timed, torch's own neither
)
KINDS = ("auto", "cpu", "cuda", "xpu", "mps")
DRIVERS = {"/dev/nvidiactl": "an NVIDIA driver", "/dev/dxg": "a GPU under WSL", "/dev/kfd": "an AMD driver"}
MPS_CONTROL = "nvidia-cuda-mps-control"  # the daemon by which kernels of several processes run side by side
VISIBLE_VARIABLES = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")  # the first is understood by both makers


class DeviceChoice(NamedTuple):
    """A device, one of KINDS but "auto", and why it was chosen; nothing where it was asked for."""

    device: str
    reason: str


def meta() -> Any:
    """`torch.device("meta")`, under which modules have shapes alone.

    Libraries of networks import torch's compiler, which torch 2.8 cannot do under it: hence before.
    """
    import torch

    if torch.torch_version.TorchVersion(torch.__version__) < "2.9":
        import torch._dynamo
    return torch.device("meta")


def find_device(wanted: str) -> DeviceChoice:
    """The device that was asked for, or for "auto" an accelerator that torch can use, else the CPU. Torch is imported
    only where a driver shows itself.

    Raises:
        UserError: a device that is not there.
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
    """Refuse a device that computes nothing here, and make the one of a number the process's own: whoever asks without
    a number asks this one (streams, graphs, its name).

    Raises:
        UserError: what is wrong with it.
    """
    import torch

    try:
        if device.startswith("cuda:"):
            torch.cuda.set_device(device)
        torch.zeros(1, device=device).item()  # "meta" is a device, and computes nothing
    except (RuntimeError, AssertionError) as error:
        raise UserError(f"Device {device!r} cannot be used: {error}.", "Use --device cpu.") from error


def accelerators(device: str) -> tuple[str, ...]:
    """Ids of all devices that this process may use, as CUDA_VISIBLE_DEVICES takes them: an inherited choice is kept,
    and the parts of a divided GPU (MIG) count each, beside GPUs that are whole. None for the CPU, and for mps, which is
    one."""
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
    if any(name.startswith("MIG-") for name in ids):  # the parts of a GPU are listed below it; others stay whole
        below = [*ids[1:], ""]
        return tuple(a for a, b in zip(ids, below, strict=True) if a.startswith("MIG-") or not b.startswith("MIG-"))
    import torch

    return tuple(map(str, range(torch.cuda.device_count())))


def place(devices: tuple[str, ...], worker: int, *, ranks: int = 1) -> tuple[str, ...]:
    """The devices of one of several workers: one for each of its ranks, in turn where workers share them."""
    return tuple(devices[(worker * ranks + rank) % len(devices)] for rank in range(ranks)) if devices else ()


def sharing(device: str, processes: int) -> int:
    """How many of so many processes share each device, as `place` gives them out; 1 on a CPU."""
    return -(-processes // len(devices)) if (devices := accelerators(device)) else 1


def module(device: str) -> Any:
    """torch's functions for a kind of device: torch.cuda, torch.xpu, torch.mps."""
    import torch

    return torch.get_device_module(device.partition(":")[0])


def device_name(device: str) -> str | None:
    """The maker's name of a device; None of the processor, and of an Apple GPU, which has none of its own."""
    return None if device.startswith(("cpu", "mps")) else module(device).get_device_name(device)


def generators(device: str) -> list[Any]:
    """The random generators of a device, and of the processor. `torch.manual_seed` visits all kinds: 0.3 ms."""
    import torch

    place, own = torch.device(device), [torch.default_generator]
    if place.type == "mps":
        own.append(torch.mps._get_default_mps_generator())
    elif place.type != "cpu":
        at = module(device).current_device() if place.index is None else place.index
        own.append(module(device).default_generators[at])
    return own


SHARED = 0.9  # share of a GPU's memory that its processes may allocate together; CUDA keeps the rest
_limits: dict[str, int] = {}  # device -> bytes that this process may allocate there


def share_memory(device: str, processes: int) -> None:
    """Keep this process to its part of a GPU that so many share. Else what is resident, and how a batch is divided,
    would depend on who of them came first."""
    if processes > 1 and device.startswith("cuda"):
        part = SHARED / processes
        module(device).set_per_process_memory_fraction(part)
        _limits[device] = int(part * module(device).mem_get_info(device)[1])


def free_memory(device: str) -> int:
    """Bytes that this process may still take on a device: of a CPU, in this machine's memory, as far as the system
    tells; so too of an Apple GPU, whose memory that is."""
    if not device.startswith(("cpu", "mps")):
        free: int = module(device).mem_get_info(device)[0]
        return min(free, _limits[device] - module(device).memory_reserved(device)) if device in _limits else free
    with contextlib.suppress(OSError, ValueError, StopIteration):
        lines = Path("/proc/meminfo").read_text().splitlines()
        return 1024 * int(next(line for line in lines if line.startswith("MemAvailable:")).split()[1])
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def to_device(tensor: Any, device: str) -> Any:
    """A tensor of the processor's on a device, without waiting: a copy from memory that is not pinned would."""
    return (tensor.pin_memory() if device.startswith(("cuda", "xpu")) else tensor).to(device, non_blocking=True)


def uploaded(array: Any, device: str) -> Any:
    """A copy of an array, which may be a read-only map, on a device. It is copied once, into pinned memory, and from
    there while the device computes with what it was given before; the processor is at most `UNDER_WAY` copies ahead."""
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


UNDER_WAY = 2
_uploads: dict[str, tuple[Any, deque[Any]]] = {}  # of a device: its stream of copies, what was asked of it before each


def synchronise(device: str) -> None:
    """Wait until the device has finished all submitted work."""
    if device.startswith("mps"):
        module(device).synchronize()
    elif not device.startswith("cpu"):
        module(device).synchronize(device)


DAMAGED: set[str] = set()
"""Devices whose allocator a failed recording has left as if it were still going on (torch before 2.12)."""
BEFORE_RELEASE: list[Callable[[], None]] = []
"""Drop what holds memory and can be made again."""


def release(device: str) -> None:
    """Release cached memory, and what can be made again."""
    for drop in BEFORE_RELEASE:
        drop()
    gc.collect()
    if not device.startswith("cpu"):
        module(device).empty_cache()


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


def is_lost(device: str) -> bool:
    """Whether nothing can be computed any more: after an illegal access or an uncorrectable error all that a process
    asks of its GPU fails."""
    if device.startswith("cpu") or device in DAMAGED:
        return device in DAMAGED
    import torch

    try:
        return torch.zeros(1, device=device).item() != 0.0
    except RuntimeError as error:
        return not is_out_of_memory(error)


class OutOfMemory(Exception):
    """The device has no room for a workload; its memory has been given back."""


def timed(call: Callable[[], object], *, device: str, calls: int = 1) -> float:
    """Seconds of `calls` calls, waiting for the device before and after, not between.

    Raises:
        OutOfMemory: instead of whatever the device raised.
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
    # Outside the handler the traceback, which holds the tensors, is gone.
    release(device)
    raise OutOfMemory


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
        """The results of `work` for each batch, in order. It must change nothing before it succeeds.

        Raises:
            RuntimeError, MemoryError: not even one image at a time fits.
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
            # outside the handler the traceback, which holds the activations, is gone
            self.batch, self.shrunk = (stop - start) // 2, True
            release(self.device)
        return results
