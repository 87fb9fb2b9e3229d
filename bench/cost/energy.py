"""Measure the electrical energy used while a cell runs, by the counters of the processor (RAPL) and of NVIDIA's GPUs
(NVML), where they can be read. Linux lets only root read RAPL's counters, unless a rule says otherwise.

RAPL counts the energy of everything that runs on a processor. A cell (one training run with its evaluations) is
assigned a fraction of each interval's energy: its fraction of the processor time that all processes used in the
interval. Workers that share a GPU are assigned equal parts of the GPU's energy.
"""

from __future__ import annotations

import contextlib
import math
import os
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from bench.core import files
from bench.core.environment import POWERCAP
from bench.store.study import ENERGY
from bench.study.record import Energy

STAT = Path("/proc/stat")
READING_SECONDS = 30.0  # seconds between readings; at 500 W the smallest counters (65 kJ) wrap around after two minutes
Joules = float


class Zone:
    """One RAPL counter, in a folder of Linux's powercap. A call returns the joules since this object was made; None if
    the counter cannot be read."""

    def __init__(self, folder: Path) -> None:
        self._counter = folder / "energy_uj"
        self._range = int((folder / "max_energy_range_uj").read_text())
        self._before, self._total = int(self._counter.read_text()), 0

    def __call__(self) -> Joules | None:
        try:
            now = int(self._counter.read_text())
        except (OSError, ValueError):
            return None
        self._total += now - self._before if now >= self._before else now + self._range - self._before
        self._before = now
        return self._total / 1e6


def zones(root: Path = POWERCAP) -> list[Zone]:
    """Return the RAPL counters below `root` that count whole processors, and those that count their memory separately;
    an empty list if none can be read."""
    found = []
    for folder in sorted(root.glob("intel-rapl:*")):  # AMD processors too; intel-rapl-mmio:* counts the same again
        with contextlib.suppress(OSError, ValueError):
            name = (folder / "name").read_text().strip()
            if name.startswith("package") or name == "dram":  # cores and uncore are parts of the package
                found.append(Zone(folder))
    return found


class Gpu:
    """The energy counter of one NVIDIA GPU. A call returns the joules since the GPU's driver was loaded; None if the
    counter cannot be read."""

    def __init__(self, ask: Callable[[Any], int], handle: Any) -> None:
        self._ask, self._handle = ask, handle

    def __call__(self) -> Joules | None:
        try:
            return self._ask(self._handle) / 1000
        except Exception:  # NVML's own errors: the GPU has dropped off the bus
            return None


def gpus(device: str, number: int) -> list[Callable[[], Joules | None]]:
    """Return the energy counters of the first `number` GPUs that this process may use, as functions that return joules
    since the driver was loaded.

    The list is empty if `device` is no CUDA device, without NVIDIA's library, for GPUs older than Volta, and for parts
    of a divided GPU.
    """
    if not device.startswith("cuda"):
        return []
    try:
        import pynvml

        pynvml.nvmlInit()
        visible = [part.strip() for part in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if part.strip()]
        counters: list[Callable[[], Joules | None]] = []
        for name in (visible or list(map(str, range(number))))[:number]:
            of = pynvml.nvmlDeviceGetHandleByIndex if name.isdigit() else pynvml.nvmlDeviceGetHandleByUUID
            counter = Gpu(pynvml.nvmlDeviceGetTotalEnergyConsumption, of(int(name) if name.isdigit() else name))
            if counter() is not None:
                counters.append(counter)
        return counters
    except Exception:  # no library, no driver, no counter: nothing is known
        return []


def processor_seconds() -> tuple[float, float] | None:
    """Return two processor times in seconds: that of this process and of the child processes that it has waited for,
    and that of all processes of the machine since it was booted. None if they are unknown."""
    try:
        ticks = list(map(int, STAT.read_text().splitlines()[0].split()[1:9]))
    except (OSError, ValueError, IndexError):
        return None
    user, nice, system, _, _, irq, softirq, steal = ticks
    own = os.times()
    busy = (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")
    return sum(own[:4]), busy


class Meter:
    """Measures the energy that a cell uses, in a thread that runs from when the meter is made until `stop`.

    The sum is written to a file after every reading, so that energy counts too that was used before a process was
    killed.

    Args:
        path: file for the sum in joules.
        device: the cell's device, such as "cuda".
        ranks: number of this cell's processes on this machine; all are taken to use equal processor time.
        share: number of workers that use each of the cell's GPUs.
        root: folder of the RAPL counters.
        used: returns the processor times of this process and of the machine: see `processor_seconds`.
    """

    def __init__(
        self,
        path: Path,
        *,
        device: str = "cpu",
        ranks: int = 1,
        share: int = 1,
        root: Path = POWERCAP,
        used: Callable[[], tuple[float, float] | None] = processor_seconds,
    ) -> None:
        self._path, self._ranks, self._share, self._used = path, ranks, share, used
        self._zones, self._gpus = zones(root), gpus(device, ranks)
        self._processor, self._gpus_before = 0.0, [counter() for counter in self._gpus]
        self._read = [zone() for zone in self._zones]
        self._spent = used()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True, name="energy")
        if self._zones or self._gpus:
            self._thread.start()

    def _watch(self) -> None:
        while not self._stop.wait(READING_SECONDS):
            self.look()

    def look(self) -> None:
        """Read the counters, and write the joules that were measured so far to the file."""
        read, spent = [zone() for zone in self._zones], self._used()
        joules = math.fsum(n - b for n, b in zip(read, self._read, strict=True) if n is not None and b is not None)
        if spent is not None and self._spent is not None and spent[1] > self._spent[1]:
            share = self._ranks * (spent[0] - self._spent[0]) / (spent[1] - self._spent[1])
            self._processor += joules * min(1.0, share)
            self._read, self._spent = read, spent
        pairs = zip([counter() for counter in self._gpus], self._gpus_before, strict=True)
        accelerator = math.fsum(n - b for n, b in pairs if n is not None and b is not None)
        known = {"processor_joules": self._processor} if self._zones else {}
        known |= {"accelerator_joules": accelerator / self._share} if self._gpus else {}
        with contextlib.suppress(Exception):  # a full disk is reported by other parts of the program
            files.write_sealed(self._path, known)

    def stop(self) -> None:
        """Take a last reading, and end the thread; a second call does nothing."""
        if (self._zones or self._gpus) and not self._stop.is_set():
            self._stop.set()
            self._thread.join()
            self.look()


def of_attempts(attempts: Iterable[Path], *, co2: float | None) -> Energy | None:
    """Return the energy that a cell's attempts used together; None if none was measured.

    Args:
        attempts: folders of the attempts.
        co2: grams of CO2 per kWh, kept with the energy; None if unknown.
    """
    sums: dict[str, float] = {}
    for attempt in attempts:
        with contextlib.suppress(OSError, ValueError, TypeError):
            for name, joules in files.read_sealed(attempt / ENERGY).items():
                if name in ("processor_joules", "accelerator_joules"):
                    sums[name] = sums.get(name, 0.0) + float(joules)
    return Energy(**sums, co2_grams_per_kwh=co2) if sums else None
