"""Child processes: the environment variables that they get, and threads that end them when their parent has ended.

The variables must be set before torch is imported, so the parent process sets them, not the worker.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence

from bench.core.device import VISIBLE_VARIABLES, accelerators, free_memory, place
from bench.core.errors import PROJECT, UserError

POLL_SECONDS = 0.2  # seconds between two checks of the parent


def end_with(parent: int) -> None:
    """Start a thread that sends SIGTERM to this process once its parent, whose process id is `parent`, has ended."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(POLL_SECONDS)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, daemon=True).start()


def end_with_starter() -> None:
    """Start a thread that ends this process once the process that created it through `multiprocessing` has ended.
    `os.getppid` cannot be used: with a fork server it is that server, which lives as long as its last child."""
    starter = multiprocessing.parent_process()
    assert starter is not None, "multiprocessing started it"

    def watch() -> None:
        starter.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def free_memory_of(device: str) -> int:
    """Return `free_memory(device)`, in bytes. For a GPU a child process asks, and then ends: a process that asks a GPU
    occupies half a gigabyte of the GPU's memory, and keeps all others out of a GPU that serves one process at a time.

    Raises:
        UserError: the device cannot be used.
    """
    if device == "cpu":
        return free_memory(device)
    asks = f"from bench.core.device import free_memory; print(free_memory({device!r}))"
    environment = child_environment(1, devices=place(accelerators(device), 0))
    answer = subprocess.run([sys.executable, "-c", asks], env=environment, capture_output=True, text=True)
    if answer.returncode:
        said = (answer.stderr.strip().splitlines() or [f"exit code {answer.returncode}"])[-1]
        raise UserError(f"{device} cannot be used: {said}", "See what else uses it, or give --device cpu.")
    return int(answer.stdout)


def child_environment(threads: int, *, devices: Sequence[str] = ()) -> dict[str, str]:
    """Return the environment variables for a child process: those of this process, changed so that the child uses
    `threads` CPU threads and can import the project.

    malloc is told to keep large allocations instead of returning them to the kernel at each step, which would cost a
    training step on a CPU several per cent in page faults.

    Args:
        devices: ids of the only GPUs that the child sees (see `bench.core.device.accelerators`); (): no restriction.
    """
    environment = dict(os.environ)
    environment |= {
        "OMP_NUM_THREADS": str(threads),
        "MKL_NUM_THREADS": str(threads),
        "PYTHONPATH": os.pathsep.join(filter(None, [str(PROJECT), os.environ.get("PYTHONPATH")])),
        "MALLOC_TRIM_THRESHOLD_": "1073741824",
        "MALLOC_MMAP_THRESHOLD_": "1073741824",
        "PYTHONSAFEPATH": "1",  # else `python -m` imports a user's json.py from the folder that it is started in
        "TOKENIZERS_PARALLELISM": "false",
        "TORCHINDUCTOR_COMPILE_THREADS": str(threads),  # else each process starts one thread for every core
    }
    if devices:
        environment |= {
            name: ",".join(devices) for name in VISIBLE_VARIABLES if name == VISIBLE_VARIABLES[0] or name in environment
        }
        environment["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"  # device numbers as in nvidia-smi, which also measures energy
    return environment
