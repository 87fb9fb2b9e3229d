"""A record says where a result came from: versions, hardware, commit. No host name, no user name, no path."""

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
    """The origin of a result: versions, hardware, commit. It holds no host name, no user name and no path.

    Attributes:
        python … pandas: versions.
        platform: system and machine.
        cpu: the processor's name.
        cores: of it, as allowed.
        accelerator: its name; None without one.
        cuda: its version.
        commit: of this project.
        dirty: whether tracked files differed from it.
        time_start: of the first attempt.
        time_end: when the record was made.
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
    """(commit, whether tracked files differ from it) of this project, or (None, None) outside a git checkout."""
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
    """Whether this machine may count the energy of a cell: it has RAPL's counters, or the device is NVIDIA's."""
    return device.startswith("cuda") or any(POWERCAP.glob("intel-rapl:*"))


def now() -> str:
    """The time in UTC, to the millisecond; as text these sort like times."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")


def cpu_model() -> str:
    """The processor's own name for itself."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def cores() -> int:
    """Processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def core_groups(root: Path = NODES) -> list[set[int]]:
    """Processors this process may use, by the memory that they are near to (NUMA nodes)."""
    own = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set()
    groups = []
    for path in sorted(root.glob("node*/cpulist")):
        with contextlib.suppress(OSError, ValueError):
            ranges = [part.split("-") for part in path.read_text().strip().split(",") if part]
            groups.append(own & {core for ends in ranges for core in range(int(ends[0]), int(ends[-1]) + 1)})
    return [group for group in groups if group]


@cache
def version(package: str) -> str | None:
    """Installed version of a package, without importing it."""
    import importlib.metadata

    try:
        return importlib.metadata.version(package)
    except (importlib.metadata.PackageNotFoundError, ValueError):  # of an empty name
        return None


def describe(*, time_start: str | None = None, time_end: str | None = None) -> Environment:
    """The environment stored in every record. An accelerator is named where torch has been imported."""
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
