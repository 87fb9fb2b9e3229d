"""Check that this machine trains rightly and at speed: one line per check, a table to keep.

`--quick` leaves out what takes long on a GPU: throughput, lack of memory, feeding, whole suites. On a CPU the checks of
GPUs do not apply. Results are kept in the output file: the same command goes on with the rest, and with
what failed. Where there are several GPUs (or cores) they train together too; two machines are not tried.

Limits called targets were chosen, as shares of what makers state; no GPU has been measured against them. A roofline is
computed, with the assumptions of bench/cost/roofline.py. It is no limit.
"""

from __future__ import annotations

import copy
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from bench.core import environment, files
from bench.core.cli import parser
from bench.core.console import make_console, write
from bench.core.device import accelerators, find_device, release, synchronise
from bench.core.errors import EXIT_FAILED, EXIT_OK, UserError, command, sigterm_interrupts
from bench.core.formatting import compact
from bench.core.spec import Recipe, to_json
from bench.execute import first_hour
from bench.execute.examined import CheckResult, MachineCheck, as_wanted, at_least, at_most

EXAMPLES = """\
examples:
  python -m bench.doctor --quick                  a few minutes
  python -m bench.doctor --out doctor-h100.json   everything; the table goes to doctor-h100.md
  python -m bench.doctor --quick --anew           check again what was checked before
  python -m bench.doctor --quick --json           print what is in the output file instead of a line per check
"""
STEPS = 50  # of a training that is compared with another
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
"""Models whose training is timed, and images of a batch that one H100 holds."""
# images per second of a training step by other code on one H100 SXM: github.com/NVIDIA-BioNeMo/nvSubquadratic,
# benchmarks/README.md (ViT-5-Small, batch 256, bfloat16, made-up images, max-autotune)
PUBLISHED = {"ViT-S/16": 8_003.0}


def is_sxm(device: str) -> bool:
    """Whether a device is an H100 SXM or an H200, of which targets and rooflines are known."""
    import torch

    return device.startswith("cuda") and any(k in torch.cuda.get_device_name() for k in ("H100 80GB HBM3", "H200"))


# -- the machine -------------------------------------------------------------------------------------------------------


def machine(device: str) -> Iterator[CheckResult]:
    """Versions, room, a compiler, a known peak, nobody else on the GPU."""
    import torch

    from bench.cost import peaks
    from bench.train import compiled

    yield CheckResult(check="versions", value=f"torch {torch.__version__}, {environment.cpu_model()}")
    yield at_least("free disk", shutil.disk_usage(".").free / 1e9, 5.0, "GB")
    if Path("/dev/shm").exists():
        yield at_least("shared memory", shutil.disk_usage("/dev/shm").total / 1e9, 1.0, "GB")
    if not device.startswith("cuda"):
        return
    name = torch.cuda.get_device_name()
    yield CheckResult(check="GPU", value=f"{len(accelerators(device))} × {name}")
    found = peaks.published_peak(name, "bfloat16")
    yield CheckResult(check="peak", value=found.source if found else "not in the table: measured instead")
    why = compiled.obstacle(device)
    yield CheckResult(check="compiler", value=why or "works", limit="works", outcome="fail" if why else "pass")
    query = ["nvidia-smi", "--query-compute-apps=pid", "--format=csv,noheader"]
    if shutil.which("nvidia-smi"):
        others = subprocess.run(query, capture_output=True, text=True).stdout.split()
        yield at_most("processes on the GPUs", len(others), 1)


def ceilings(device: str) -> Iterator[CheckResult]:
    """Matrix products, memory and launches against what the maker states."""
    import torch

    from bench.cost import peaks, timing

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
        timing.timed(call, device=device, calls=3)
        return size * calls / timing.timed(call, device=device, calls=calls)

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
    import torch
    from torch import nn

    from bench.core import registry

    torch.manual_seed(0)
    model: Any = registry.build_model(name, **(SIZES | sizes)).train()
    head = model.head if isinstance(model.head, nn.Linear) else model.head.fc
    nn.init.normal_(head.weight, std=0.1)  # zeros would hide the body
    return model


def _batch(number: int, device: str) -> tuple[Any, Any]:
    import torch

    x_BCHW = torch.rand((number, 1, 28, 28), generator=torch.Generator().manual_seed(1)) * 2 - 1
    return x_BCHW.to(device), (torch.arange(number) % 10).to(device)


def _gradient(model: Any, device: str, dtype: str, micro_batch: int = 0) -> Any:
    """All gradients of one step in one float64 vector on the CPU."""
    import torch

    from bench.train.step import Step

    model = copy.deepcopy(model).to(device)
    step = Step(
        model=model, recipe=Recipe(batch=32, lr=0.0, clip=0.0, dtype=dtype, micro_batch=micro_batch), device=device
    )
    step(*_batch(32, device), lr=0.0, seed=0)
    return torch.cat([p.grad.flatten().double().cpu() for p in model.parameters() if p.grad is not None])


def numerics(device: str) -> Iterator[CheckResult]:
    """FLOPs of every family by three counters; gradients against float64 on the CPU, in low precision, and in parts."""
    import torch
    from torch.nn import functional as F

    from bench.cost.crosscheck import crosscheck

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


def _losses(device: str, steps: int, *, mode: str = "off") -> tuple[list[float], Any]:
    import torch

    from bench.train import modes
    from bench.train.rehearsal import rehearse
    from bench.train.step import Step

    with modes.switched(mode):
        step = Step(model=_model(FAMILIES[0]).to(device), recipe=Recipe(batch=32, dtype="bfloat16"), device=device)
    batch = _batch(32, device)
    if step.compiles:
        rehearse(step, *batch)
    found = [step(*batch, lr=1e-3, seed=seed).clone() for seed in range(steps)]
    return torch.stack(found).tolist(), step


def recorded(device: str) -> Iterator[CheckResult]:
    """Compiled and recorded steps against those that are written; nothing waits, nothing compiles again."""
    import torch

    wanted, _ = _losses(device, STEPS)
    for mode in ("default", "reduce-overhead"):
        found, step = _losses(device, STEPS, mode=mode)
        apart = max(abs(a - b) / max(abs(b), 1e-3) for a, b in zip(found, wanted, strict=True))
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
    """Memory that stays reserved after cells of several shapes."""
    import torch

    for name in (*FAMILIES, FAMILIES[0]):
        _losses(device, 3, mode="reduce-overhead")
        release(device)
        yield at_most(f"reserved after {name}", torch.cuda.memory_reserved() / 1e9, 1.0, "GB")


def resuming(device: str) -> Iterator[CheckResult]:
    """A training that is stopped in the middle and continued, against one that was not."""
    import numpy as np

    from bench.data.image_set import ImageSet
    from bench.train.batches import Batches
    from bench.train.trainer import Checkpoints, Trainer

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


def _roofline(name: str, batch: int) -> float:
    """Images per second of a training step on an H100, were its roofline reached."""
    from bench.core import registry
    from bench.cost import flops, peaks, roofline

    count = flops.count(name, image_size=IMAGE_SIZE, channels=3, num_classes=1000)
    work = roofline.StepWork(
        family=registry.family_label(name),
        flops=count.train_flops_per_image["dense"],
        activation_bytes=count.activation_bytes or 0,
        params=count.params,
        images=batch,
    )
    return batch / roofline.seconds(work, peaks.accelerator("H100"))


def throughput(device: str) -> Iterator[CheckResult]:
    """Images per second of the training step at 224 pixels, beside an H100's roofline and what others published."""
    from bench.cost import timing
    from bench.execute.workloads import Subject

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
        if is_sxm(device):
            yield CheckResult(check=f"{name}: of the H100's roofline", value=f"{rate / _roofline(name, batch):.0%}")
        del workload
        release(device)


CHECKS = (
    MachineCheck(name="machine", run=machine),
    MachineCheck(name="ceilings", run=ceilings),
    MachineCheck(name="numerics", run=numerics),
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
    MachineCheck(name="evaluation", run=first_hour.evaluation, gpu=True, long=True),
    MachineCheck(name="suites", run=first_hour.suites, gpu=True, long=True),
)


def examine(check: MachineCheck, device: str) -> list[CheckResult]:
    """Its lines; what it raises is one that fails."""
    if check.gpu and not device.startswith("cuda"):
        return [CheckResult(check=check.name, value="needs a GPU", outcome="n/a")]
    found: list[CheckResult] = []
    try:
        found.extend(check.run(device))
    except Exception as error:
        reason = f"{type(error).__name__}: {error}".strip().splitlines()[0]
        found.append(CheckResult(check=check.name, value=reason, outcome="fail"))
    synchronise(device)
    return found


def markdown(sections: dict[str, list[CheckResult]], facts: dict[str, Any]) -> str:
    """The table, and where it was made."""
    where = ", ".join(f"{key} {value}" for key, value in facts.items() if value is not None)
    rows = [f"| {line.check} | {line.value} | {line.limit} | {line.outcome} |" for s in sections.values() for line in s]
    return "\n".join([f"# Checked: {where}", "", "| check | value | limit | |", "|---|---|---|---|", *rows, ""])


@command
def main(argv: list[str] | None = None) -> int:
    p = parser("python -m bench.doctor", __doc__ or "", EXAMPLES)
    p.add_argument("--device", default="auto", help="cpu, cuda, mps, or auto")
    p.add_argument("--quick", action="store_true", help="leave out what takes long")
    p.add_argument("--anew", action="store_true", help="check again what the output file has")
    p.add_argument("--out", type=Path, default=Path("doctor.json"), help="JSON; a .md with the table goes beside it")
    p.add_argument("--json", action="store_true", help="machine-readable: every check of every section")
    options = p.parse_args(argv)
    if options.out.suffix != ".json":
        raise UserError(f"--out {options.out} does not end in .json.", "The table is written beside it, as .md.")
    device, reason = find_device(options.device)
    console = make_console(stderr=options.json)
    write(console, f"Device: {device}{f' ({reason})' if reason else ''}")
    import torch

    from bench.train import precision

    precision.set_up(threads=environment.cores())
    torch.zeros(1, device=device)
    described = replace(environment.describe(), dirty=None)
    facts = {key: value for key, value in to_json(described).items() if not key.startswith("time")} | {"device": device}
    before: dict[str, Any] = {}
    if options.out.exists() and not options.anew:
        before = json.loads(options.out.read_text())
    kept = before.get("sections", {}) if before.get("environment") == facts else {}
    sections = {name: [CheckResult(**line) for line in lines] for name, lines in kept.items()}
    started = time.monotonic()
    with sigterm_interrupts():
        for check in CHECKS:
            if check.long and options.quick:
                continue
            if check.name not in sections or any(line.outcome == "fail" for line in sections[check.name]):
                sections[check.name] = examine(check, device)
                everything = {name: [asdict(line) for line in lines] for name, lines in sections.items()}
                files.write_json(options.out, {"environment": facts, "sections": everything})
            for line in sections[check.name]:
                limit = f" ({line.limit})" if line.limit else ""
                write(
                    console,
                    f"{line.outcome:4}  {line.check}: {line.value}{limit}",
                    style="red" if line.outcome == "fail" else "",
                )
    table = options.out.with_suffix(".md")
    files.write_bytes(table, markdown(sections, facts).encode())
    lines = [line for found in sections.values() for line in found]
    failed = sum(line.outcome == "fail" for line in lines)
    write(console, f"{len(lines)} checks, {failed} failed, in {time.monotonic() - started:.0f} s. Table: {table}")
    if options.json:
        print(options.out.read_text(), end="")
    return EXIT_FAILED if failed else EXIT_OK


if __name__ == "__main__":
    sys.exit(main())
