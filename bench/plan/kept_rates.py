"""What calibration found, kept for an hour beside the decoded data sets: a plan, and the run after it, measure once.

One sealed file per model, named by a hash of everything that its rates depend on: the model and its training step, this
machine and how many processes share it, versions, and this project's source. What is older, damaged or not ours is
as good as absent, and a folder that cannot be written keeps nothing: rates are never a result, only quicker to look up.
"""

from __future__ import annotations

import hashlib
import platform
import time
from functools import cache
from pathlib import Path
from typing import Any

from bench import __version__
from bench.core import environment, files, registry
from bench.core.errors import UserError
from bench.core.spec import RECIPE_REVISION, canonical
from bench.core.subprocesses import PROJECT, child_environment
from bench.data import cache as _cache

Json = dict[str, Any]
SECONDS = 3600.0  # for which rates are kept: what else a machine does changes
# What of a recipe changes what a step does, and not how long it takes. All else of a recipe counts.
FREE = (
    "lr", "weight_decay", "betas", "momentum", "warmup_images", "decay", "timescale_images", "cooldown",
    "cooldown_shape", "schedule", "head_bias", "label_smoothing",
)  # fmt: skip
SETTINGS = ("ATEN_", "CUDA_", "DNNL_", "GOMP_", "KMP_", "MALLOC_", "MKL_", "OMP_", "ONEDNN_", "PYTORCH_", "TORCH")
LATER = ("analysis", "html", "plots")  # rooms that only read records: no step runs through them


class KeptRates:
    """Answers of `bench.plan.calibrate`, for `processes` processes of `threads` threads at once on one device.

    A job is what such a process is asked about a model: {"cell", "classes", "measure"}.
    """

    def __init__(self, *, device: str, threads: int, processes: int) -> None:
        self.circumstances = circumstances(device=device, threads=threads, processes=processes)

    def find(self, job: Json) -> tuple[Json, float] | None:
        """(the answer about a model, seconds since it was measured); None where there is none to rely on."""
        try:
            path = self._path(job)
            kept = files.read_sealed(path)
            age = time.time() - kept["measured"]
            trusted = kept["name"] == path.stem and 0 <= age <= SECONDS  # less than 0: the clock was set back
            return (kept["answer"], age) if trusted else None
        except (OSError, ValueError, KeyError, TypeError, RuntimeError):  # the last: no home, JSON nested too deeply
            return None

    def keep(self, job: Json, answer: Json) -> None:
        """Keep an answer that was just found, where that can be done, and drop what nobody may rely on any more."""
        try:
            path = self._path(job)
            path.parent.mkdir(parents=True, exist_ok=True)
            files.write_sealed(path, {"name": path.stem, "measured": time.time(), "answer": answer})
            for old in path.parent.glob("*.json*"):  # and what a kill left half written
                if time.time() - old.stat().st_mtime > SECONDS:
                    old.unlink(missing_ok=True)
        except (OSError, RuntimeError, UserError):
            pass

    def _path(self, job: Json) -> Path:
        cell = job["cell"]
        asked = {name: cell[name] for name in ("model", "model_options", "image_size", "channels")}
        asked |= {"step": {name: value for name, value in cell["recipe"].items() if name not in FREE}}
        asked |= {"classes": job["classes"], "measure": job["measure"]}
        asked |= {"revisions": [registry.family_of(cell["model"]).REVISION, RECIPE_REVISION]}
        name = hashlib.sha256(canonical([asked, self.circumstances]).encode()).hexdigest()
        return _cache.directory() / "rates" / f"{name}.json"


def circumstances(*, device: str, threads: int, processes: int) -> Json:
    """What the rates of every model depend on. The host's name tells two nodes with one home apart, and is hashed."""
    accelerator = None
    if device != "cpu":
        import torch

        accelerator = torch.cuda.get_device_name(device)
    settings = {name: value for name, value in child_environment(threads).items() if name.startswith(SETTINGS)}
    return {
        "device": [device, accelerator], "threads": threads, "processes": processes, "settings": settings,
        "machine": [platform.node(), platform.platform(), environment.cpu_model(), environment.cores()],
        "versions": [__version__, platform.python_version(),
                     *(environment.version(name) for name in environment.PACKAGES)],
        "source": source_sha256(PROJECT),
    }  # fmt: skip


@cache
def source_sha256(project: Path) -> str:
    """Hex sha256 of the modules that a step may run through: whoever edits one measures again (10 ms)."""
    digest = hashlib.sha256()
    for package in ("baselines", "bench", "vit"):
        for path in sorted((project / package).rglob("*.py")):
            name = path.relative_to(project)
            if name.parts[1] not in LATER:
                digest.update(f"{name.as_posix()} {_cache.file_sha256(path)}\n".encode())
    return digest.hexdigest()
