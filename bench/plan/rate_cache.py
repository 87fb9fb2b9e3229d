"""A one-hour cache of measured throughputs, so that a plan and the run after it measure only once.

There is one file per model beside the decoded data sets, named by a hash of everything that throughput depends on. A
file that is older, damaged, or not written by this cache counts as absent. If the folder cannot be written, nothing is
kept: throughputs are never a result.
"""

from __future__ import annotations

import hashlib
import platform
import time
from pathlib import Path
from typing import Any

from bench import __version__
from bench.core import environment, files
from bench.core.device import device_name
from bench.core.errors import UserError
from bench.core.files import canonical
from bench.core.subprocesses import child_environment
from bench.data.cache import directory
from bench.study.cell import RECIPE_REVISION

Json = dict[str, Any]
KEPT_SECONDS = 3600.0  # seconds for which throughputs are kept: a machine's other work changes
ENVIRONMENT_PREFIXES = (
    "ATEN_",
    "CUDA_",
    "DNNL_",
    "GOMP_",
    "KMP_",
    "MALLOC_",
    "MKL_",
    "OMP_",
    "ONEDNN_",
    "PYTORCH_",
    "TORCH",
)


class RateCache:
    """A cache of answers of `bench.plan.calibrate`, found by their questions. An answer holds for this machine and
    device, with `processes` processes of `threads` threads each at the same time."""

    def __init__(self, *, device: str, threads: int, processes: int) -> None:
        settings = {
            name: value for name, value in child_environment(threads).items() if name.startswith(ENVIRONMENT_PREFIXES)
        }
        self.circumstances = [
            device,
            device_name(device),
            threads,
            processes,
            settings,
            RECIPE_REVISION,
            __version__,
            platform.python_version(),
            platform.node(),
            platform.platform(),
            environment.cpu_model(),
            environment.cores(),
            *(environment.version(name) for name in environment.PACKAGES),
        ]

    def find(self, question: Json) -> tuple[Json, float] | None:
        """Return (the answer to a question, seconds since it was measured); None if there is no answer to rely on."""
        name = self._name(question)
        try:
            kept = files.read_sealed(_folder() / name)
            age = time.time() - kept["measured"]
            return (kept["answer"], age) if kept["name"] == name and 0 <= age <= KEPT_SECONDS else None
        except (OSError, ValueError, KeyError, TypeError, RuntimeError):  # the last: no home, too deep JSON
            return None

    def keep(self, question: Json, answer: Json) -> None:
        """Store an answer that was just found, if the folder can be written, and remove answers that are too old."""
        name = self._name(question)
        try:
            folder = _folder()
            folder.mkdir(parents=True, exist_ok=True)
            files.remove_leftovers(folder)
            files.write_sealed(folder / name, {"name": name, "measured": time.time(), "answer": answer})
            for old in folder.glob("*.json*"):  # includes files that a kill left half written
                if time.time() - old.stat().st_mtime > KEPT_SECONDS:
                    old.unlink(missing_ok=True)
        except (OSError, RuntimeError, UserError):
            pass

    def _name(self, question: Json) -> str:
        return hashlib.sha256(canonical([question, self.circumstances]).encode()).hexdigest() + ".json"


def _folder() -> Path:
    return directory() / "rates"
