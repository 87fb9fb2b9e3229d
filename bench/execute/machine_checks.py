"""Those checks of `vit-bench doctor` that concern the machine, one training step, and speed; and the list of all
checks."""

from __future__ import annotations

import copy
import math
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from bench.core import environment
from bench.core.device import accelerators, release, synchronise, timed
from bench.core.formatting import compact
from bench.cost import peaks, timing
from bench.cost.crosscheck import crosscheck
from bench.data.image_set import ImageSet
from bench.execute import first_hour
from bench.execute.examined import CheckResult, MachineCheck, as_wanted, at_least, at_most
from bench.execute.workloads import Subject
from bench.study import registry
from bench.study.cell import Recipe
from bench.train import compiled, modes
from bench.train.batches import Batches
from bench.train.rehearsal import rehearse
from bench.train.step import Step
from bench.train.trainer import Checkpoints, Trainer

LARGE_GRADIENTS = {"ViT-S/16": (224, 64), "R50x1": (224, 64)}
TENSORS_APART = (
    0.15  # relative difference allowed between two bfloat16 gradients of a tensor: rounding adds up over rows
)
STEPS = 50  # steps of a training that is compared with another
FAMILIES = ("ViT-pico/14", "R8x0.125-s2", "R5+ViT-pico/14")
SIZES: dict[str, Any] = {"image_size": 28, "channels": 1, "num_classes": 10}
IMAGE_SIZE = 224
THROUGHPUT = {
    "ViT-Ti/16": 512,
    "ViT-S/16": 256,
    "ViT-B/16": 256,
    "ViT-L/16": 128,
    "ViT-H/14": 64,
    "R50x1": 128,
    "R50+ViT-B/16": 128,
}
"""Model whose training is timed -> images of a batch that one H100 holds."""
# images per second of a training step by other code on one H100 SXM: github.com/NVIDIA-BioNeMo/nvSubquadratic,
# benchmarks/README.md (ViT-5-Small, batch 256, bfloat16, made-up images, max-autotune)
PUBLISHED = {"ViT-S/16": 8_003.0}


def is_sxm(device: str) -> bool:
    """Return whether a device is an H100 SXM or an H200, the GPUs for which the checks know targets."""
    return device.startswith("cuda") and any(k in torch.cuda.get_device_name() for k in ("H100 80GB HBM3", "H200"))


# -- the machine -------------------------------------------------------------------------------------------------------


def machine(device: str) -> Iterator[CheckResult]:
    """Check the machine: versions, disk and shared memory; for a GPU also its peak FLOP/s, the compiler, and that no
    other process uses it."""
    yield CheckResult(check="versions", value=f"torch {torch.__version__}, {environment.cpu_model()}")
    yield at_least("free disk", shutil.disk_usage(".").free / 1e9, 5.0, "GB")
    if Path("/dev/shm").exists():
        yield at_least("shared memory", shutil.disk_usage("/dev/shm").total / 1e9, 1.0, "GB")
    if not device.startswith("cuda"):
        return
    name = torch.cuda.get_device_name()
    yield CheckResult(check="GPU", value=f"{len(accelerators(device))} × {name}")
    known = peaks.published_peak(name, "bfloat16")
    yield CheckResult(check="peak", value=known.source if known else "not in the table: measured instead")
    why = compiled.obstacle(device)
    yield CheckResult(check="compiler", value=why or "works", limit="works", outcome="fail" if why else "pass")
    query = ["nvidia-smi", "--query-compute-apps=pid", "--format=csv,noheader"]
    if shutil.which("nvidia-smi"):
        others = subprocess.run(query, capture_output=True, text=True).stdout.split()
        yield at_most("processes on the GPUs", len(others), 1)


def ceilings(device: str) -> Iterator[CheckResult]:
    """Measure the speed of matrix products, copies in memory and kernel launches, and check it against what the maker
    states."""
    dtype = "bfloat16" if device.startswith("cuda") else "float32"
    measured = peaks.measured_peak(dtype, torch.get_num_threads(), device).flops_per_second / 1e12
    published = peaks.published_peak(torch.cuda.get_device_name(), dtype) if device.startswith("cuda") else None
    if published:
        target = 0.7 * published.flops_per_second / 1e12
        yield at_least(f"{dtype} products", measured, target, "TFLOP/s", why="target: 70 % of the data sheet's")
    else:
        yield CheckResult(check=f"{dtype} products", value=f"{compact(measured, 3)} TFLOP/s")
    if not device.startswith("cuda"):
        return
    data, to = (torch.empty(1 << 30, dtype=torch.uint8, device=device) for _ in range(2))
    pinned, one = torch.empty(1 << 28, dtype=torch.uint8).pin_memory(), torch.zeros(1, device=device)

    def rate(size: float, call: Callable[[], object], calls: int = 20) -> float:
        timed(call, device=device, calls=3)
        return size * calls / timed(call, device=device, calls=calls)

    copies = rate(2 * len(data), lambda: to.copy_(data))
    hosts = rate(len(pinned), lambda: data[: len(pinned)].copy_(pinned, non_blocking=True))
    launch = 1e6 / rate(1, lambda: one.add_(1), 1000)
    yield CheckResult(check="launch", value=f"{compact(launch, 3)} µs")
    if not is_sxm(device):
        yield CheckResult(
            check="bandwidth", value=f"{compact(copies / 1e12, 3)} TB/s in memory, {compact(hosts / 1e9, 3)} GB/s to it"
        )
        return
    yield at_least("copies in memory", copies / 1e12, 2.5, "TB/s", why="target: 75 % of an H100's 3.35")
    yield at_least("copies to the GPU", hosts / 1e9, 40.0, "GB/s", why="target: 63 % of PCIe 5.0's 63")


# -- one step ----------------------------------------------------------------------------------------------------------


def _model(name: str, **sizes: Any) -> Any:
    torch.manual_seed(0)
    model: Any = registry.build_model(name, **(SIZES | sizes)).train()
    head = model.head if isinstance(model.head, nn.Linear) else model.head.fc
    nn.init.normal_(head.weight, std=0.1)  # with zeros, no gradient would reach the body
    return model


def _batch(number: int, device: str) -> tuple[Any, Any]:
    x_BCHW = torch.rand((number, 1, 28, 28), generator=torch.Generator().manual_seed(1)) * 2 - 1
    return x_BCHW.to(device), (torch.arange(number) % 10).to(device)


def _gradient(model: Any, device: str, dtype: str, micro_batch: int = 0) -> Any:
    """Return all gradients of one training step as one float64 vector on the CPU. `micro_batch`: images that are
    processed at a time; 0: the whole batch."""
    model = copy.deepcopy(model).to(device)
    step = Step(
        model=model, recipe=Recipe(batch=32, lr=0.0, clip=0.0, dtype=dtype, micro_batch=micro_batch), device=device
    )
    step(*_batch(32, device), lr=0.0, seed=0)
    return torch.cat([p.grad.flatten().double().cpu() for p in model.parameters() if p.grad is not None])


def numerics(device: str) -> Iterator[CheckResult]:
    """Check, for a model of every family, that three ways of counting agree on its FLOPs, that its float32 and bfloat16
    gradients are near float64 gradients on the CPU, and that the gradients of a batch in four parts are near those of
    the whole batch."""
    for name in FAMILIES:
        counts = crosscheck(name, **SIZES)
        yield as_wanted(f"{name}: FLOPs counted", counts.sentence(), "our count", good=not counts.differs)
        model = _model(name)
        exact = copy.deepcopy(model).double()
        x_BCHW, labels_B = _batch(32, "cpu")
        F.cross_entropy(exact(x_BCHW.double()), labels_B).backward()
        right = torch.cat([p.grad.flatten() for p in exact.parameters() if p.grad is not None])
        single, half = _gradient(model, device, "float32"), _gradient(model, device, "bfloat16")
        parts = _gradient(model, device, "float32", micro_batch=8)
        yield at_most(f"{name}: float32 gradients", float((single - right).norm() / right.norm()), 1e-5)
        yield at_least(f"{name}: bfloat16 cosine", float(F.cosine_similarity(half, right, dim=0)), 0.99)
        yield at_most(f"{name}: four parts for one", float((parts - single).norm() / single.norm()), 1e-5)


def gradients(device: str, *, sizes: dict[str, tuple[int, int]] | None = None) -> Iterator[CheckResult]:
    """Check compiled gradients against eager gradients, tensor by tensor, at sizes that are used in training: compilers
    choose other kernels for small sizes, and in the norm over all tensors a single wrong tensor would not show.

    Args:
        sizes: model -> (pixels per side, images of a batch); None: LARGE_GRADIENTS.
    """
    for name, (side, images) in (LARGE_GRADIENTS if sizes is None else sizes).items():
        generator = torch.Generator().manual_seed(1)
        x_BCHW = (torch.rand((images, 3, side, side), generator=generator) * 2 - 1).to(device)
        labels_B = (torch.arange(images) % 10).to(device)
        model, found = _model(name, image_size=side, channels=3).to(device), []
        recipe = Recipe(batch=images, lr=0.0, clip=0.0, dtype="bfloat16")
        for mode in (modes.mode_for(device), "off"):
            with modes.switched(mode):
                step = Step(model=model, recipe=recipe, device=device)
            step.gradients_that_fit(x_BCHW, labels_B, seed=0)
            found.append({n: p.grad.float().clone() for n, p in model.named_parameters() if p.grad is not None})
            step.clear()
            del step
            release(device)
        given, wanted = found
        apart = {n: float((given[n] - right).norm() / right.norm().clamp(min=1e-12)) for n, right in wanted.items()}
        worst = max(apart, key=lambda n: (math.isnan(apart[n]), apart[n]))
        yield at_most(f"{name} at {side} px: worst gradient of {len(apart)}, {worst}", apart[worst], TENSORS_APART)


def _losses(device: str, steps: int, *, mode: str = "off") -> tuple[list[float], Any]:
    with modes.switched(mode):
        step = Step(model=_model(FAMILIES[0]).to(device), recipe=Recipe(batch=32, dtype="bfloat16"), device=device)
    batch = _batch(32, device)
    if step.compiles:
        rehearse(step, *batch)
    losses = [step(*batch, lr=1e-3, seed=seed).clone() for seed in range(steps)]
    return torch.stack(losses).tolist(), step


def recorded(device: str) -> Iterator[CheckResult]:
    """Check the losses of compiled steps, with and without CUDA graphs, against those of eager steps; and that no step
    waits for the device or compiles again."""
    wanted, _ = _losses(device, STEPS)
    for mode in ("default", "reduce-overhead"):
        losses, step = _losses(device, STEPS, mode=mode)
        apart = max(abs(a - b) / max(abs(b), 1e-3) for a, b in zip(losses, wanted, strict=True))
        yield at_most(f"{mode}: {STEPS} losses apart", apart, 2**-6)
        said = step.run_as.how
        yield CheckResult(check=f"{mode}: as asked", value=said, limit=mode, outcome="pass" if said == mode else "fail")
    batch = _batch(32, device)
    torch.cuda.set_sync_debug_mode("error")
    problem = "none"
    try:
        with torch._dynamo.config.patch(error_on_recompile=True):
            for seed in range(STEPS):
                step(*batch, lr=1e-3, seed=seed)
    except Exception as error:
        problem = f"{type(error).__name__}: {error}".splitlines()[0]
    finally:
        torch.cuda.set_sync_debug_mode("default")
    outcome = "pass" if problem == "none" else "fail"
    yield CheckResult(check=f"waits and compilations in {STEPS} steps", value=problem, limit="none", outcome=outcome)


def memory(device: str) -> Iterator[CheckResult]:
    """Check how much GPU memory stays reserved after models of several shapes were trained."""
    for name in (*FAMILIES, FAMILIES[0]):
        _losses(device, 3, mode="reduce-overhead")
        release(device)
        yield at_most(f"reserved after {name}", torch.cuda.memory_reserved() / 1e9, 1.0, "GB")


def resuming(device: str) -> Iterator[CheckResult]:
    """Check that a training which is stopped halfway and resumed has the losses of a training without a stop."""
    rng = np.random.default_rng(0)
    images = ImageSet(
        name="noise",
        split="train",
        kind="rendered",
        images_NHWC=rng.integers(0, 256, (64, 28, 28, 1), np.uint8),
        labels_N=np.arange(64) % 10,
        class_names=tuple("0123456789"),
    )
    recipe = Recipe(batch=16, lr=1e-3, warmup_images=0)

    def trainer(folder: Path) -> Trainer:
        batches = Batches(images, recipe=recipe, seed=0, device=device)
        return Trainer(
            model=_model(FAMILIES[0]).to(device),
            batches=batches,
            recipe=recipe,
            horizons=(16 * 20,),
            seed=0,
            device=device,
            saving=Checkpoints(folder=folder),
        )

    def losses(made: Trainer, steps: int) -> list[float]:
        for _ in range(steps):
            made.step()
            made.progress.step += 1
            made.progress.work += 1
        return [float(loss) for loss in made.losses]

    with tempfile.TemporaryDirectory() as folder:
        whole = losses(trainer(Path(folder, "a")), 20)
        half = trainer(Path(folder, "b"))
        losses(half, 10)
        half.save()
        again = trainer(Path(folder, "b"))
        assert again.resume()
        resumed = losses(again, 10)
    apart = max(abs(a - b) / max(abs(b), 1e-3) for a, b in zip(resumed, whole, strict=True))
    yield at_most("losses after a restart apart", apart, 0.0 if device == "cpu" else 2**-6)


# -- speed and studies -------------------------------------------------------------------------------------------------


def throughput(device: str) -> Iterator[CheckResult]:
    """Measure the throughput of the training step at 224 pixels, in images per second, and check it against published
    numbers where there are any."""
    for name, batch in THROUGHPUT.items():
        subject = Subject(model=name, image_size=IMAGE_SIZE, channels=3, device=device, dtype="bfloat16")
        workload = subject.largest_training(batch, pace=timing.Pace())
        if workload is None:
            yield CheckResult(check=name, value="out of memory", outcome="fail")
            continue
        timing.interleave([workload], device=device, windows=7)
        rate = workload.spread().median or 0.0
        if is_sxm(device) and name in PUBLISHED:
            yield at_least(name, rate, PUBLISHED[name], "images/s", why="published of other code on an H100")
        else:
            yield CheckResult(check=name, value=f"{compact(rate)} images/s")
        del workload
        release(device)


CHECKS = (
    MachineCheck(name="machine", run=machine),
    MachineCheck(name="ceilings", run=ceilings),
    MachineCheck(name="numerics", run=numerics),
    MachineCheck(name="large gradients", run=gradients, gpu=True),
    MachineCheck(name="recorded steps", run=recorded, gpu=True),
    MachineCheck(name="memory", run=memory, gpu=True),
    MachineCheck(name="too little memory", run=first_hour.scarcity, gpu=True, long=True),
    MachineCheck(name="resuming", run=resuming),
    MachineCheck(name="kills", run=first_hour.kills),
    MachineCheck(name="study", run=first_hour.study),
    MachineCheck(name="ranks", run=first_hour.ranks),
    MachineCheck(name="workers", run=first_hour.workers, gpu=True, long=True),
    MachineCheck(name="timing", run=first_hour.timing, gpu=True, long=True),
    MachineCheck(name="throughput", run=throughput, gpu=True, long=True),
    MachineCheck(name="feed", run=first_hour.feed, gpu=True, long=True),
    MachineCheck(name="decoding", run=first_hour.decoding, gpu=True, long=True),
    MachineCheck(name="evaluation", run=first_hour.evaluation, gpu=True, long=True),
    MachineCheck(name="suites", run=first_hour.suites, gpu=True, long=True),
)


def examine(check: MachineCheck, device: str) -> Iterator[CheckResult]:
    """Run a check, and yield each result as soon as it is known. An exception becomes a result with the outcome "fail";
    a check for GPUs on another device gives "n/a"."""
    if check.gpu and not device.startswith("cuda"):
        yield CheckResult(check=check.name, value="needs a GPU", outcome="n/a")
        return
    try:
        yield from check.run(device)
        synchronise(device)
    except Exception as error:  # if the device is lost, checks in processes of their own still work
        reason = f"{type(error).__name__}: {error}".strip().splitlines()[0]
        yield CheckResult(check=check.name, value=reason, outcome="fail")
