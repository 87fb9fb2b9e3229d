"""Peak memory as measured: of this process, or of the accelerator. No torch is loaded for the process's own.

`ru_maxrss` alone would do where there is no /proc, but on Linux it is also the peak of whatever process started this
one (getrusage(2) keeps it across exec), and cannot be reset.
"""

from __future__ import annotations

import contextlib
import resource
import sys
from pathlib import Path

_STATUS = Path("/proc/self/status")
_RESET = Path("/proc/self/clear_refs")


def peak_bytes(device: str = "cpu") -> int:
    """Largest bytes held at once since `forget_peak`: of the accelerator where there is one, else of this process."""
    if device.startswith("cuda"):
        import torch

        return torch.cuda.max_memory_allocated()
    with contextlib.suppress(OSError):
        for line in _STATUS.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024  # proc_pid_status(5): in kB
    unit = 1 if sys.platform == "darwin" else 1024  # getrusage(2): bytes on macOS, kilobytes elsewhere
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def forget_peak(device: str = "cpu") -> None:
    """Let `peak_bytes` speak of what follows, where the system can: a worker does many cells in one process."""
    if device.startswith("cuda"):
        import torch

        if torch.cuda.is_initialized():
            torch.cuda.reset_peak_memory_stats()
    with contextlib.suppress(OSError):
        _RESET.write_text("5")  # proc_pid_clear_refs(5): resets the peak resident set size
