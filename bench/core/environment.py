"""The software versions, hardware and commit that every record states. No host name, user name or path is stored."""

from __future__ import annotations

import contextlib
import datetime
import os
import platform
import subprocess
import sys
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path

from bench import __version__

NODES = Path("/sys/devices/system/node")
POWERCAP = Path("/sys/class/powercap")
PACKAGES = ("torch", "timm", "numpy", "scipy", "pandas")


@dataclass(frozen=True, kw_only=True, slots=True)
class Environment:
    """The versions, hardware and commit that a result was made with. It holds no host name, user name or path.

    Attributes:
        python, project_version, torch, timm, numpy, scipy, pandas: versions; None for what is not installed.
        platform: operating system and machine type, such as "Linux x86_64".
        cpu: name of the processor.
        cores: number of processors that the process was allowed to use.
        accelerator: name of the GPU; None without a GPU.
        cuda: version of CUDA; None without a GPU.
        commit: git commit of this project; None outside a git checkout.
        dirty: whether tracked files differed from the commit; None outside a git checkout.
        time_start: start of the cell's first attempt, UTC.
        time_end: time when the record was made, UTC.
    """

    python: str | None = None
    project_version: str | None = None
    torch: str | None = None
    timm: str | None = None
    numpy: str | None = None
    scipy: str | None = None
    pandas: str | None = None
    platform: str | None = None
    cpu: str | None = None
    cores: int | None = None
    accelerator: str | None = None
    cuda: str | None = None
    commit: str | None = None
    dirty: bool | None = None
    time_start: str | None = None
    time_end: str | None = None


@lru_cache(maxsize=1)
def commit() -> tuple[str | None, bool | None]:
    """Return (commit of this project, whether tracked files differ from it), or (None, None) outside a git checkout."""
    root = Path(__file__).resolve().parent.parent.parent
    try:
        if not (root / ".git").exists():
            return None, None
        run = lambda *a: subprocess.run(["git", "-C", str(root), *a], capture_output=True, text=True, timeout=10)  # noqa: E731
        head = run("rev-parse", "HEAD")
        dirty = run("status", "--porcelain", "--untracked-files=no")
        return (head.stdout.strip() or None, bool(dirty.stdout.strip())) if head.returncode == 0 else (None, None)
    except (OSError, subprocess.SubprocessError):
        return None, None


def counts_energy(device: str) -> bool:
    """Return whether this machine may be able to measure the energy of a run: the device is a CUDA GPU, or Linux shows
    energy counters of the processor (RAPL)."""
    return device.startswith("cuda") or any(POWERCAP.glob("intel-rapl:*"))


def now() -> str:
    """Return the time in UTC as ISO 8601 text, to the millisecond; such texts sort in order of time."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")


def cpu_model() -> str:
    """Return the model name that the processor reports, or its architecture if it reports none."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def cores() -> int:
    """Return the number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def core_groups(root: Path = NODES) -> list[set[int]]:
    """Return the processors that this process may use, one set of processor numbers for each NUMA node. `root`: the
    folder in which Linux describes the nodes."""
    own = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set()
    groups = []
    for path in sorted(root.glob("node*/cpulist")):
        with contextlib.suppress(OSError, ValueError):
            ranges = [part.split("-") for part in path.read_text().strip().split(",") if part]
            groups.append(own & {core for ends in ranges for core in range(int(ends[0]), int(ends[-1]) + 1)})
    return [group for group in groups if group]


@cache
def version(package: str) -> str | None:
    """Return the installed version of a package without importing it; None if it is not installed."""
    import importlib.metadata

    try:
        return importlib.metadata.version(package)
    except (importlib.metadata.PackageNotFoundError, ValueError):  # ValueError: the name is empty
        return None


def describe(*, time_start: str | None = None, time_end: str | None = None) -> Environment:
    """Return the environment to store in a record; the arguments become its fields of the same names. The GPU is named
    only if torch has already been imported."""
    head, dirty = commit()
    torch = sys.modules.get("torch")
    accelerated = torch is not None and torch.cuda.is_available()
    return Environment(
        python=platform.python_version(),
        project_version=__version__,
        torch=version("torch"),
        timm=version("timm"),
        numpy=version("numpy"),
        scipy=version("scipy"),
        pandas=version("pandas"),
        platform=f"{platform.system()} {platform.machine()}",
        cpu=cpu_model(),
        cores=cores(),
        accelerator=torch.cuda.get_device_name() if torch and accelerated else None,
        cuda=torch.version.cuda if torch and accelerated else None,
        commit=head,
        dirty=dirty,
        time_start=time_start,
        time_end=time_end,
    )
