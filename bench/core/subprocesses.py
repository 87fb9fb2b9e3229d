"""Processes that this one starts: their environment variables, and that they do not outlive it.

The variables must be set before torch starts, hence not in the worker itself.
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

POLL_SECONDS = 0.2  # seconds between looks at the parent


def end_with(parent: int) -> None:
    """Have this process end, as by SIGTERM, once `parent` is not its parent any more."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(POLL_SECONDS)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, daemon=True).start()


def end_with_starter() -> None:
    """Have this process, which `multiprocessing` started, end once the one that asked for it has. Under a fork server
    `getppid` is that server, which lives as long as its last child does."""
    starter = multiprocessing.parent_process()
    assert starter is not None, "multiprocessing started it"

    def watch() -> None:
        starter.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def free_memory_of(device: str) -> int:
    """`free_memory`, asked by another process: who asks a GPU keeps half a gigabyte of it, and where it serves one
    process at a time, no worker could begin.

    Raises:
        UserError: nothing can be asked there.
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
    """This process's environment with the thread count fixed, the project importable, and, where there are any, only
    `devices` visible.

    Large allocations stay with the allocator instead of going back to the kernel at each step, which costs a training
    step on a CPU several per cent in page faults.
    """
    environment = dict(os.environ)
    environment |= {
        "OMP_NUM_THREADS": str(threads),
        "MKL_NUM_THREADS": str(threads),
        "PYTHONPATH": os.pathsep.join(filter(None, [str(PROJECT), os.environ.get("PYTHONPATH")])),
        "MALLOC_TRIM_THRESHOLD_": "1073741824",
        "MALLOC_MMAP_THRESHOLD_": "1073741824",
        "PYTHONSAFEPATH": "1",  # `python -m` would import a user's json.py from the folder that it is started in
        "TOKENIZERS_PARALLELISM": "false",
        "TORCHINDUCTOR_COMPILE_THREADS": str(threads),  # each process would start one for every core
    }
    if devices:
        environment |= {
            name: ",".join(devices) for name in VISIBLE_VARIABLES if name == VISIBLE_VARIABLES[0] or name in environment
        }
        environment["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"  # numbers are those of nvidia-smi, and of the joules it counts
    return environment
