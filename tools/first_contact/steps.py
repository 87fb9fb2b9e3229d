"""Imports, checks of the doctor, and small studies from plan to report."""

from __future__ import annotations

import argparse
import importlib
import os
import pkgutil
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tools.first_contact.plan import PROJECT, STUDY, WARMUP, Line


def imports(given: argparse.Namespace) -> Iterator[Line]:
    """Every module, and versions."""
    import torch

    wrong, number = {}, 0
    for package in ("bench", "vit", "baselines"):  # what is installed
        for module in pkgutil.walk_packages([str(PROJECT / package)], f"{package}."):
            if ".examples" in module.name or module.name.endswith("__main__") or "._alias" in module.name:
                continue
            number += 1
            try:
                importlib.import_module(module.name)
            except BaseException as error:
                wrong[module.name] = f"{type(error).__name__}: {error}"[:120]
    yield {"what": "modules imported", "value": number, "failed": wrong, "outcome": "fail" if wrong else "pass"}
    from bench.core import environment

    names = "torch torchvision timm triton numpy scipy pandas fvcore orjson platformdirs simplejpeg nvidia-ml-py"
    yield {"what": "versions", "python": sys.version.split()[0]} | {n: environment.version(n) for n in names.split()}
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 1e9
    shared = os.statvfs("/dev/shm") if Path("/dev/shm").exists() else None
    room = shared.f_bavail * shared.f_frsize / 1e9 if shared else 0.0
    yield {"what": "host", "cores": environment.cores(), "memory_gb": round(memory, 1), "shm_gb": round(room, 1)}
    if not torch.cuda.is_available():
        return
    properties = torch.cuda.get_device_properties(0)
    free, total = torch.cuda.mem_get_info()
    yield {
        "what": "GPU",
        "name": properties.name,
        "multiprocessors": properties.multi_processor_count,
        "free_gb": round(free / 1e9, 1),
        "total_gb": round(total / 1e9, 1),
        "cudnn": torch.backends.cudnn.version(),
        "nccl": ".".join(map(str, torch.cuda.nccl.version())),
    }
    before = joules()
    time.sleep(1.0)
    after = joules()
    watts = None if before is None or after is None else round(after - before, 1)
    yield {"what": "idle power by NVML", "watts": watts, "outcome": "fail" if watts is None else "pass"}
    from bench.core.device import MPS_CONTROL

    there = any(Path(folder, MPS_CONTROL).exists() for folder in os.environ.get("PATH", "").split(os.pathsep))
    yield {"what": "NVIDIA's MPS", "value": "there" if there else "not there"}


def checks(given: argparse.Namespace, names: str) -> Iterator[Line]:
    """Lines of the doctor, as they come."""
    from dataclasses import asdict

    from bench.core import environment
    from bench.execute.machine_checks import CHECKS
    from bench.train import precision

    precision.set_up(threads=environment.cores())
    by_name = {check.name: check for check in CHECKS}
    for name in names.split(","):
        check, started = by_name[name], time.perf_counter()
        if check.gpu and not given.device.startswith("cuda"):
            yield {"what": name, "value": "needs a GPU", "outcome": "n/a"}
            continue
        try:
            for result in check.run(given.device):
                line = asdict(result)
                yield {"what": line.pop("check"), **line}
        except Exception as error:
            yield {"what": name, "value": f"{type(error).__name__}: {error}"[:300], "outcome": "fail"}
        yield {"what": f"{name} took", "seconds": round(time.perf_counter() - started, 1)}


def study(given: argparse.Namespace, name: str) -> Iterator[Line]:
    """A small study from plan to report, as a user runs it; what its records say."""
    suite, _, device = name.partition(":")
    device = device or given.device
    scale = "cpu" if given.cpu_rehearsal else "gpu"
    words = ["--suite", suite, "--device", device, "--results", str(given.work / f"study-{suite}-{device}")]
    if suite == "scaling":
        words += ["--scale", "gpu", "--data", "fashion-mnist", "--image-size", "28" if given.cpu_rehearsal else "32"]
        words += ["--seeds", "1", "--set", f"warmup={WARMUP[scale]}", *STUDY[scale]]
        words += ["--set", "batch=32"] if given.cpu_rehearsal else ["--share", "2"]
    if device == "cpu":
        words += ["--workers", "1" if given.cpu_rehearsal else "4"]
    if suite == "smoke" and given.cpu_rehearsal:
        words += ["--models", "ViT-pico/14"]
    started = time.monotonic()
    done = subprocess.Popen(
        [sys.executable, "-m", "bench.run", *words],
        env=dict(os.environ) | ({"CUDA_VISIBLE_DEVICES": ""} if device == "cpu" else {}),
        stdout=sys.stderr,
        stderr=sys.stderr,
    )
    try:
        code = done.wait(timeout=max(5.0, given.limit - 15))
    except subprocess.TimeoutExpired:
        done.send_signal(signal.SIGTERM)  # it saves, and what is finished counts
        code = done.wait()
    yield {
        "what": f"{suite} on {device}",
        "seconds": round(time.monotonic() - started, 1),
        "exit_code": code,
        "outcome": "pass" if code == 0 else "fail",
    }
    for record in records(given.work / f"study-{suite}-{device}"):
        execution, cost = record.execution, record.cost
        last = record.horizons[-1] if record.horizons else None
        yield {
            "what": record.directory,
            "status": record.status,
            "dtype": getattr(execution, "dtype", None),
            "compile_mode": getattr(execution, "compile_mode", None),
            "attention": list(getattr(execution, "attention_kernels", ()) or ()),
            "images_per_second": round(last.images_per_second) if last and last.images_per_second else None,
            "train_s": cost.seconds.train,
            "evaluate_s": cost.seconds.evaluate,
            "wait_s": cost.seconds.wait,
            "joules": cost.energy.accelerator_joules if cost.energy else None,
            "peak_memory_gb": round(cost.peak_memory_bytes / 1e9, 2) if cost.peak_memory_bytes else None,
            "outcome": "pass" if record.status == "complete" else "fail",
        }


def records(folder: Path) -> list[Any]:
    """All records below a folder."""
    from bench.store.records import read_record

    return [read_record(path) for path in sorted(folder.glob("**/cells/*/record.json"))]


def same(given: argparse.Namespace) -> Iterator[Line]:
    """Scores and losses of the smoke study here and on the processor, cell by cell."""
    if given.device == "cpu":
        yield {"what": "smoke on two devices", "value": "one device", "outcome": "n/a"}
        return
    sides = [{r.directory: r for r in records(given.work / f"study-smoke-{d}")} for d in (given.device, "cpu")]
    both = sorted(sides[0].keys() & sides[1].keys())
    yield {"what": "cells of both", "value": len(both), "outcome": "pass" if both else "fail"}
    for name in both:
        one, other = (side[name] for side in sides)
        for a, b in zip(one.horizons, other.horizons, strict=False):
            scores = [
                (abs(x.value - y.value), x.task)
                for x, y in zip(a.scores, b.scores, strict=False)
                if x.value is not None and y.value is not None
            ]
            worst, task = max(scores, default=(0.0, ""))
            mean = statistics.fmean(apart for apart, _ in scores) if scores else 0.0
            loss = None
            if a.final_train_loss is not None and b.final_train_loss is not None:
                loss = abs(a.final_train_loss - b.final_train_loss) / max(abs(b.final_train_loss), 1e-3)
            untrained = a.images_seen == 0
            good = mean <= (0.01 if untrained else 0.04) and (loss is None or loss <= 0.1)
            yield {
                "what": f"{name} after {a.images_seen} images: apart from the processor's",
                "mean_score": round(mean, 4),
                "worst_score": round(worst, 4),
                "task": task,
                "loss": None if loss is None else round(loss, 4),
                "outcome": "pass" if good else "fail",
            }


def joules() -> float | None:
    """What the first GPU has used since its driver was loaded."""
    try:
        import pynvml

        pynvml.nvmlInit()
        return pynvml.nvmlDeviceGetTotalEnergyConsumption(pynvml.nvmlDeviceGetHandleByIndex(0)) / 1000
    except Exception:
        return None
