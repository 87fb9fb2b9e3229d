"""Those checks of `vit-bench doctor` that start workers or several ranks (processes that train one network together),
feed images to training steps, or run a whole suite.

In checks with several ranks, each rank runs this file under torchrun, as `python -m bench.execute.first_hour exchange
cuda`.
"""

from __future__ import annotations

import functools
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from PIL import Image

from bench.core import environment
from bench.core.device import InBatches, accelerators, is_out_of_memory, release, synchronise, timed
from bench.core.errors import EXIT_OK, UserError
from bench.core.formatting import compact
from bench.core.subprocesses import child_environment
from bench.cost import memory, precomputed
from bench.data.image_set import ImageSet
from bench.data.load import load
from bench.data.pack import SIDES, pack
from bench.execute.examined import CheckResult, as_wanted, at_least, at_most
from bench.store import faults
from bench.store.records import read_record
from bench.store.study import Study
from bench.study import registry
from bench.study.cell import Cell, Recipe, TaskSpec, to_json
from bench.study.record import Record
from bench.suites._recipes import recipe_for
from bench.tasks._features import extractor
from bench.train import inference, precision
from bench.train.batches import Batches
from bench.train.distributed import DistributedRanks
from bench.train.ranks import ONE_RANK
from bench.train.rehearsal import rehearse
from bench.train.step import Step

TASK = TaskSpec(task="fewshot", data="digits", options=(("shots", (5,)), ("draws", 2), ("test_limit", 200)))
CELL = Cell(
    model="ViT-pico/14",
    data="fashion-mnist",
    num_images=500,
    horizons=(0, 640, 1280),
    seed=1,
    tasks=(TASK,),
    recipe=replace(recipe_for("ViT-pico/14", warmup_images=128), batch=16),
)
CLASSES = 10  # classes of the data of CELL
FAULTS = ("training-step:20", "after-evaluation:2", "training-step:10")
KILLED_AFTER, KILLED_OF = 100, 2000  # steps after which a rank is killed, and steps of the whole training
MAX_ENDING_SECONDS = 60.0  # seconds until all ranks have ended with one that was killed
SHARED, LEAST = 10, 1e-6
"""Limits for the losses of several ranks on a CPU, relative to those of one rank: they may differ SHARED times as much
as one rank's losses do when it sums each batch in two parts (at least LEAST), since rounding of float32 grows over the
steps. A batch that is divided wrongly among ranks gives far larger differences."""
ROUNDING = 2**-6  # relative difference of losses on a GPU that rounding in bfloat16 explains
SIDE, BATCH, FED = 224, 256, 20  # pixels per side, images of a batch, and batches, in the checks of speed
MODEL, LARGE = "ViT-S/16", "ViT-B/16"
MEMORY_SHARES = (0.9, 0.7, 0.5, 0.3, 0.2, 0.1)  # allowed fractions of the memory that a step needs
QUEUED = 8192  # rows of the square matrices whose products keep a device busy while it decodes
# mean difference, in levels of 256, allowed between pixels that a device and a processor decode; two such ways of
# decoding on a processor differ by 0.2 to 1.3
LEVELS_APART = 2.0
TARGET_GIGABYTES_PER_SECOND = 300.0  # GB/s: target for the exchange of gradients between GPUs with NVLink


# -- workers -----------------------------------------------------------------------------------------------------------


def _program(folder: Path, cells: Sequence[Cell], device: str, ranks: int) -> list[str]:
    folder.mkdir(exist_ok=True)
    (folder / "cells.json").write_text(json.dumps([to_json(cell) for cell in cells]))
    costs = precomputed.merge(precomputed.counted(cell, classes=CLASSES) for cell in cells)
    (folder / "costs.json").write_text(json.dumps(costs))
    start = ["bench.worker"] if ranks == 1 else ["bench.execute.torchrun", "--ranks", str(ranks)]
    return [
        sys.executable,
        "-m",
        *start,
        "--store",
        str(folder / "study"),
        "--cells",
        str(folder / "cells.json"),
        "--suite",
        "smoke",
        "--device",
        device,
        "--precomputed",
        str(folder / "costs.json"),
    ]


def _attempt(folder: Path, device: str, *cells: Cell, ranks: int = 1, fault: str = "") -> Any:
    """Train cells one after the other in one worker, and return its ended process.

    Args:
        folder: folder for the worker's files and the study.
        cells: the cells; none: CELL.
        ranks: processes of the worker.
        fault: where a kill is simulated, such as "training-step:20"; "" for nowhere.
    """
    variables = child_environment(1) | ({faults.VARIABLE: fault} if fault else {})
    program = _program(folder, cells or [CELL], device, ranks)
    return subprocess.run(program, env=variables, capture_output=True, text=True)


def _record(folder: Path, cell: Cell = CELL) -> Record | None:
    path = Study(folder / "study").cell(cell).record
    return read_record(path) if path.exists() else None


def _said(done: Any) -> str:
    return (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]


def _apart(record: Record, wanted: Record) -> float:
    """Return the largest relative difference between the final training losses of two records, over their horizons."""
    pairs = zip(record.horizons, wanted.horizons, strict=True)
    losses = [(a.final_train_loss, b.final_train_loss) for a, b in pairs]
    return max(abs(a - b) / max(abs(b), 1e-3) for a, b in losses if a is not None and b is not None)


def kills(device: str) -> Iterator[CheckResult]:
    """Check that a worker which is killed (SIGKILL) at three places, and started again each time, gets the results of a
    worker that is never killed."""
    with tempfile.TemporaryDirectory() as name:
        whole, killed = Path(name, "whole"), Path(name, "killed")
        for fault in FAULTS:
            done = _attempt(killed, device, fault=fault)
            yield as_wanted(f"killed at {fault}", str(done.returncode), str(-signal.SIGKILL))
        done = _attempt(killed, device)
        yield as_wanted("started again", "finished" if done.returncode == 0 else _said(done), "finished")
        _attempt(whole, device)
        resumed, wanted = _record(killed), _record(whole)
        if resumed is None or wanted is None:
            yield CheckResult(check="records", value="missing", outcome="fail")
            return
        limit = 0.0 if device == "cpu" else ROUNDING
        yield at_most("losses of horizons apart", _apart(resumed, wanted), limit)
        if device == "cpu":
            same = [[replace(s, detail={}) for s in row.scores] for row in resumed.horizons] == [
                [replace(s, detail={}) for s in row.scores] for row in wanted.horizons
            ]
            yield as_wanted("scores", "the same" if same else "others", "the same")


# -- ranks -------------------------------------------------------------------------------------------------------------


def number_of_ranks(device: str) -> int:
    """Return with how many ranks to try: the largest power of two, up to 16, for which there are enough GPUs (on a CPU,
    enough cores, and two at most). A GPU that is divided by MIG counts as one."""
    ids = accelerators(device)
    there = len(ids) if device.startswith("cuda") else min(2, environment.cores())
    there = 1 if any(name.startswith("MIG-") for name in ids) else there
    return max(n for n in (1, 2, 4, 8, 16) if n <= max(1, there))


def ranks(device: str) -> Iterator[CheckResult]:
    """Check that a training by several ranks has the losses of a training by one, and that all ranks end when one is
    killed; on GPUs also how fast ranks exchange gradients, and how throughput grows with their number."""
    count = number_of_ranks(device)
    if count == 1:
        yield CheckResult(check="ranks", value="one device", outcome="n/a")
        return
    with tempfile.TemporaryDirectory() as name:
        one, several = Path(name, "one"), Path(name, "several")
        divided = replace(CELL, recipe=replace(CELL.recipe, micro_batch=CELL.recipe.batch // 2))
        _attempt(one, device, CELL, *([divided] if device == "cpu" else []))
        wanted, parts, limit = _record(one), _record(one, divided), ROUNDING
        if device == "cpu" and wanted is not None:
            limit = SHARED * max(LEAST, _apart(parts, wanted) if parts is not None else 0.0)
        shared = {kind: replace(CELL, recipe=replace(CELL.recipe, sharding=kind)) for kind in ("replicate", "fsdp")}
        done = _attempt(several, device, *shared.values(), ranks=count)
        for sharding, cell in shared.items():
            record = _record(several, cell)
            if record is None:  # perhaps the failure of the other cell ended the worker
                done = _attempt(several, device, cell, ranks=count)
                record = _record(several, cell)
            if record is None or wanted is None:
                yield CheckResult(check=f"{count} ranks, {sharding}", value=_said(done), outcome="fail")
                continue
            yield at_most(f"{count} ranks, {sharding}: losses apart from one rank's", _apart(record, wanted), limit)
        yield from _killed_rank(Path(name, "killed"), device, count)
    if device.startswith("cuda"):
        for what in ("exchange", "growth"):
            yield from _under_torchrun(what, device, count)


def _killed_rank(folder: Path, device: str, count: int) -> Iterator[CheckResult]:
    cell = replace(CELL, horizons=(0, CELL.recipe.batch * KILLED_OF))
    started = subprocess.Popen(
        _program(folder, [cell], device, count),
        env=child_environment(1) | {faults.VARIABLE: f"training-step:{KILLED_AFTER}:SIGSTOP"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    stopped = list[int]()  # process ids, in the order of ranks
    while started.poll() is None and len(stopped) < count:
        time.sleep(0.1)
        stopped = _stopped_ranks(started.pid)
    for number, pid in enumerate(stopped, start=1):
        os.kill(pid, signal.SIGKILL if number == count else signal.SIGCONT)
    before = time.monotonic()
    try:
        _, errors = started.communicate(timeout=2 * MAX_ENDING_SECONDS)
    except subprocess.TimeoutExpired:
        started.kill()
        _, errors = started.communicate()
    yield at_most("all ranks end with one that is killed", time.monotonic() - before, MAX_ENDING_SECONDS, "s")
    said = [line for line in errors.splitlines() if line.startswith("error:")]
    good = any(f"Rank {count - 1} of {count}" in line for line in said)  # another rank and the launcher say so
    yield as_wanted("its error message", said[0] if said else "none", f"names rank {count - 1}", good=good)
    done = _attempt(folder, device, cell, ranks=count)
    yield as_wanted("the same command", "finishes" if done.returncode == 0 else _said(done), "finishes")


def _stopped_ranks(launcher: int) -> list[int]:
    """Return the process ids of those ranks that have stopped themselves (SIGSTOP), as they do at an agreed step.
    `launcher`: process id of torchrun, their parent."""
    asked = ["ps", "-o", "pid=,stat=,args=", "--ppid", str(launcher)]
    printed = subprocess.run(asked, capture_output=True, text=True).stdout
    rows = [line.split(maxsplit=2) for line in printed.splitlines()]
    return [int(pid) for pid, state, words in rows if state.startswith("T") and "bench.worker" in words]


def _under_torchrun(what: str, device: str, count: int) -> Iterator[CheckResult]:
    program = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--local-addr=127.0.0.1",  # else ranks look up this machine's name, for minutes if it is unknown
        f"--nproc-per-node={count}",
        "-m",
        "bench.execute.first_hour",
        what,
        device,
    ]
    done = subprocess.run(program, env=child_environment(1), capture_output=True, text=True)
    if done.returncode:
        yield CheckResult(check=what, value=_said(done), outcome="fail")
        return
    for line in json.loads(done.stdout.splitlines()[-1]):
        yield CheckResult(**line)


def exchange(joined: Any) -> list[CheckResult]:
    """Measure how fast the ranks exchange gradients (all-reduce), in GB/s. `joined`: this process's rank, with all
    others."""
    size = 1 << 28 if joined.device == "cuda" else 1 << 20
    flat = torch.ones(size, device=joined.device)
    timed(lambda: dist.all_reduce(flat), device=joined.device, calls=3)
    seconds = timed(lambda: dist.all_reduce(flat), device=joined.device, calls=10) / 10
    rate = 2 * (joined.size - 1) / joined.size * 4 * size / seconds / 1e9
    if joined.device == "cuda":
        return [at_least("exchange", rate, TARGET_GIGABYTES_PER_SECOND, "GB/s", why="target, with NVLink")]
    return [CheckResult(check="exchange", value=f"{compact(rate, 3)} GB/s")]


def growth(joined: Any) -> list[CheckResult]:
    """Measure how throughput grows with ranks: images per second of one rank when all train together, divided by images
    per second of a rank that trains alone. `joined`: this process's rank, with all others."""
    rates = []
    for shared in (ONE_RANK, joined):
        step, batch = _step(MODEL, joined.device, ranks=shared, images=BATCH * shared.size)
        rates.append(_rate(step, batch, joined.device))
        del step
        release(joined.device)
    return [at_least(f"{joined.size} ranks grow", rates[1] / rates[0], 0.93, why="target, of each rank's own rate")]


# -- memory ------------------------------------------------------------------------------------------------------------


def _allow(size: float | None) -> None:
    """Limit the GPU memory of this process to `size` bytes; None: lift the limit."""
    total = torch.cuda.get_device_properties(torch.cuda.current_device()).total_memory
    torch.cuda.set_per_process_memory_fraction(1.0 if size is None else min(1.0, size / total))


def _step(name: str, device: str, *, ranks: Any = None, images: int = BATCH) -> tuple[Any, tuple[Any, Any]]:
    """Return the training step of a new network, and the images and labels of this rank's part of a batch. The step has
    been rehearsed on them.

    Args:
        name: the model.
        ranks: the ranks that train it together; None: this process alone.
        images: images of the whole batch.
    """
    torch.manual_seed(0)
    shared = ranks or ONE_RANK
    model = registry.build_model(name, image_size=SIDE, channels=3, num_classes=1000).to(device).train()
    step = Step(model=model, recipe=Recipe(batch=images, lr=1e-3, dtype="auto"), device=device, ranks=shared)
    each = images // shared.size
    x_BCHW = torch.rand((each, 3, SIDE, SIDE), generator=torch.Generator().manual_seed(shared.rank)) * 2 - 1
    batch = (x_BCHW.to(device), torch.arange(each, device=device) % 1000)
    rehearse(step, *batch)
    return step, batch


def _rate(step: Any, batch: tuple[Any, Any], device: str) -> float:
    """Return the throughput of a training step, in images per second of this rank. `batch`: images and labels."""

    def once() -> None:
        step(*batch, lr=1e-6, seed=0)

    timed(once, device=device, calls=5)
    return len(batch[1]) * FED / timed(once, device=device, calls=FED)


def _trained(device: str, ranks: Any = None) -> tuple[Any, int]:
    """Train a new network for three steps. Return (all of its weights as one vector, peak memory in bytes). `ranks`:
    the ranks that train it together; None: this process alone."""
    release(device)
    memory.reset_peak(device)
    step, batch = _step(MODEL, device, ranks=ranks, images=BATCH * (ranks.size if ranks else 1))
    for seed in range(3):
        step(*batch, lr=1e-3, seed=seed)
    weights = torch.cat([p.detach().flatten().float().cpu() for p in step.model.parameters()])
    need = memory.measured_peak_bytes(device)
    del step, batch
    release(device)
    return weights, need


def scarcity(device: str) -> Iterator[CheckResult]:
    """Check training steps that get less and less of the memory that they need: each must end with the same weights, in
    smaller parts, or report that memory is not enough."""
    whole, need = _trained(device)
    yield CheckResult(check=f"{MODEL}: memory of a step", value=f"{compact(need / 1e9, 3)} GB")
    for share in MEMORY_SHARES:
        name = f"with {share:.0%} of it"
        try:
            _allow(share * need)
            trained, _ = _trained(device)
            yield at_most(f"{name}: weights apart", float((trained - whole).norm() / whole.norm()), ROUNDING)
        except (RuntimeError, MemoryError) as error:
            good = is_out_of_memory(error)
            yield as_wanted(name, f"{type(error).__name__}: {error}".splitlines()[0], "out of memory", good=good)
        finally:
            _allow(None)
            release(device)


# -- speed -------------------------------------------------------------------------------------------------------------


def timing(device: str) -> Iterator[CheckResult]:
    """Check that this machine's clock and the GPU's own events measure the same time for the same steps, and that the
    GPU is busy for most of it."""
    for name, least in ((MODEL, 0.95), ("ViT-Ti/16", 0.85)):
        step, batch = _step(name, device)
        ours = _rate(step, batch, device)
        first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda.synchronize(device)
        started = time.perf_counter()
        first.record()
        for _ in range(FED):
            step(*batch, lr=1e-6, seed=0)
        last.record()
        torch.cuda.synchronize(device)
        seconds = time.perf_counter() - started
        yield at_most(f"{name}: clock and events apart", abs(seconds / (first.elapsed_time(last) / 1e3) - 1), 0.02)
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
            for _ in range(FED):
                step(*batch, lr=1e-6, seed=0)
            torch.cuda.synchronize(device)
        busy = sum(event.self_device_time_total for event in profile.key_averages()) / 1e6
        share = busy * ours / (len(batch[1]) * FED)
        yield at_least(f"{name}: the GPU is busy", share, least, why="target")
        del step, batch
        release(device)


def feed(device: str) -> Iterator[CheckResult]:
    """Check how fast batches are made from each kind of storage, on their own and together with a training step."""
    step, batch = _step(MODEL, device)
    alone = _rate(step, batch, device)
    yield CheckResult(check=f"{MODEL} on images that are there", value=f"{compact(alone)} images/s")
    recipe = Recipe(batch=BATCH, flip=True)
    with tempfile.TemporaryDirectory() as name:
        number, rng = 4 * BATCH, np.random.default_rng(0)
        pixels = np.lib.format.open_memmap(Path(name, "pixels.npy"), "w+", np.uint8, (number, SIDE, SIDE, 3))
        pixels[:] = rng.integers(0, 256, (1, SIDE, SIDE, 3), np.uint8)
        stored = ImageSet(
            name="noise",
            split="train",
            kind="rendered",
            images_NHWC=pixels,
            labels_N=np.arange(number) % 10,
            class_names=tuple("0123456789"),
        )
        write_jpegs(Path(name, "made"), number=2 * BATCH)
        encoded = load(f"folder:made:{SIDE}px:stream", "train", root=Path(name))
        pack("folder:made", Path(name, "packed"), root=Path(name), side=max(SIDE, min(SIDES)))
        packed = load(f"folder:packed:{SIDE}px:stream", "train", root=Path(name))
        for where, images, tier, decoding in (
            ("resident", stored, "resident", "processor"),
            ("mapped", stored, "mapped", "processor"),
            ("JPEG", encoded, "streamed", "processor"),
            ("packed JPEG", packed, "streamed", "processor"),
            ("JPEG by nvJPEG", encoded, "streamed", "device"),
        ):
            asked = replace(recipe, decoding=decoding)
            try:
                made: Any = Batches(images, recipe=asked, seed=0, device=device, tier=tier)  # type: ignore[arg-type]
            except UserError as error:
                yield CheckResult(check=f"{where}: decoded", value=str(error).splitlines()[0], outcome="fail")
                continue
            if decoding == "device":
                decoded = Batches(images, recipe=recipe, seed=0, device=device, tier=tier)(0)[0].float()  # type: ignore[arg-type]
                apart = (made(0)[0].float() - decoded).abs().mean().item()
                yield at_most(f"{where}: apart from the processor's pixels", apart, LEVELS_APART, "levels of 256")
            at = iter(range(10**6))

            def next_one(made: Any = made, at: Iterator[int] = at) -> Any:
                return made(next(at))

            def both(next_one: Callable[[], Any] = next_one) -> None:
                step(*next_one(), lr=1e-6, seed=0)

            timed(next_one, device=device, calls=3)
            fed = BATCH * FED / timed(next_one, device=device, calls=FED)
            timed(both, device=device, calls=3)
            together = BATCH * FED / timed(both, device=device, calls=FED)
            yield CheckResult(check=f"{where}: batches alone", value=f"{compact(fed)} images/s")
            # the speed of decoding depends on the machine; what is checked is that nothing else is lost
            slower = min(alone, fed)
            yield at_least(f"{where}: step with its batches, over the slower of both", together / slower, 0.9)
            if made.reader is not None:
                made.reader.close()


def decoding(device: str) -> Iterator[CheckResult]:
    """Check that the device decodes the same pixels whether or not other work is queued on it. A difference means that
    the decoder writes into memory that is still being read."""
    recipe, steps = Recipe(batch=BATCH, flip=True, crop=0.25, decoding="device"), 12
    queued = torch.randn((QUEUED, QUEUED), device=device)
    with tempfile.TemporaryDirectory() as name:
        write_jpegs(Path(name, "made"), number=2 * BATCH)
        encoded = load(f"folder:made:{SIDE}px:stream", "train", root=Path(name))
        drawn: list[torch.Tensor] = []
        for busy in (False, True):
            made = Batches(encoded, recipe=recipe, seed=0, device=device, tier="streamed")
            sums = []
            for step in range(steps):
                if not busy:
                    synchronise(device)
                for _ in range(10 * busy):
                    torch.mm(queued, queued)
                sums.append(made(step)[0].double().flatten(1).sum(1))
            drawn.append(torch.cat(sums).cpu())
            if made.reader is not None:
                made.reader.close()
        wrong = int((drawn[0] != drawn[1]).sum())
        yield at_most(f"images of {len(drawn[0])} that differ beside other work", wrong, 0)


def write_jpegs(folder: Path, *, number: int) -> None:
    """Write a folder of smooth, made-up pictures of 500 x 375 pixels in two classes: `number` to train on, and two to
    test on."""
    rng = np.random.default_rng(0)
    for index in range(number):
        place = folder / "train" / "ab"[index % 2] / f"{index:05d}.jpg"
        place.parent.mkdir(parents=True, exist_ok=True)
        small = Image.fromarray(rng.integers(0, 256, (12, 16, 3), np.uint8))
        small.resize((500, 375), Image.Resampling.BICUBIC).save(place, quality=90)
    for name in "ab":  # a test set of one image per class
        place = folder / "test" / name / "0.jpg"
        place.parent.mkdir(parents=True, exist_ok=True)
        small.resize((500, 375)).save(place, quality=90)


def evaluation(device: str) -> Iterator[CheckResult]:
    """Check the features of a network, float32 and bfloat16: how fast they are computed, and that they are near those
    of the CPU."""
    images_NHWC = np.random.default_rng(0).integers(0, 256, (4 * BATCH, SIDE, SIDE, 3), np.uint8)
    torch.manual_seed(0)
    model = registry.build_model(LARGE, image_size=SIDE, channels=3, num_classes=10)
    few = images_NHWC[:8]
    wanted = extractor(model, image_size=SIDE, channels=3, device="cpu")(few)
    model = model.to(device)
    for name, limit in (("float32", 1e-4), ("bfloat16", 3e-2)):
        batches = InBatches(device=device)
        network = inference.in_precision(model, dtype=name, device=device, batches=batches)
        features = extractor(network, image_size=SIDE, channels=3, device=device, batches=batches)
        apart = float(np.linalg.norm(features(few) - wanted) / np.linalg.norm(wanted))
        yield at_most(f"{LARGE}, {name}: features apart from the CPU's", apart, limit)
        call = functools.partial(features, images_NHWC)
        timed(call, device=device)
        rate = len(images_NHWC) / timed(call, device=device)
        yield CheckResult(check=f"{LARGE}, {name}: features", value=f"{compact(rate)} images/s")


# -- suites ------------------------------------------------------------------------------------------------------------


def _run(folder: str, *arguments: str) -> tuple[Any, float]:
    started = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "bench.run", *arguments, "--results", folder],
        capture_output=True,
        text=True,
        env=child_environment(environment.cores()),
    )
    return done, time.monotonic() - started


def study(device: str) -> Iterator[CheckResult]:
    """Check that the smallest suite works as a user runs it, from its plan to its report."""
    with tempfile.TemporaryDirectory() as folder:
        for what, more in (("plan", ["--plan"]), ("run", [])):
            done, seconds = _run(folder, "--suite", "smoke", "--device", device, *more)
            value = f"{seconds:.0f} s" if done.returncode == 0 else _said(done)
            yield as_wanted(f"smoke: {what}", value, "exit code 0", good=done.returncode == 0)
            if done.returncode:
                return


def workers(device: str) -> Iterator[CheckResult]:
    """Check that each GPU has a worker while the smallest suite runs: nvidia-smi must show a process on every GPU."""
    count = len(accelerators(device))
    if count == 1 or shutil.which("nvidia-smi") is None:
        why = "one device" if count == 1 else "only nvidia-smi tells"
        yield CheckResult(check="GPUs with a worker", value=why, outcome="n/a")
        return
    seen: set[str] = set()
    over = threading.Event()

    def look() -> None:
        query = ["nvidia-smi", "--query-compute-apps=gpu_uuid", "--format=csv,noheader"]
        while not over.wait(1.0):
            seen.update(subprocess.run(query, capture_output=True, text=True).stdout.split())

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    with tempfile.TemporaryDirectory() as folder:
        _run(folder, "--suite", "smoke", "--device", device, "--workers", str(count), "--seeds", str(count))
    over.set()
    thread.join()
    yield at_least("GPUs with a worker", len(seen), count)


def suites(device: str) -> Iterator[CheckResult]:
    """Check how long it takes to plan the main suite, and that the suite "speed" works for one model."""
    with tempfile.TemporaryDirectory() as folder:
        scale = ["--scale", "gpu", "--device", device]
        done, seconds = _run(folder, "--suite", "scaling", "--only", "vit-ti*", "--plan", *scale)
        yield at_most("scaling: plan", seconds if done.returncode == 0 else float("inf"), 60.0, "s")
        one = ["--image-size", str(SIDE), "--seeds", "1"]  # a cell takes minutes
        done, seconds = _run(folder, "--suite", "speed", "--models", LARGE, *one, *scale)
        value = f"{seconds:.0f} s" if done.returncode == 0 else _said(done)
        yield as_wanted("speed: run", value, "exit code 0", good=done.returncode == 0)
        for path in sorted(Path(folder, "speed").glob("cells/*/record.json")):
            yield from judged(read_record(path))


def judged(record: Record) -> Iterator[CheckResult]:
    """Check a record of the suite "speed": its batch sizes are in ascending order, and the largest batch found is at
    least the fastest batch."""
    if record.speed is not None and record.speed.inference is not None:
        batches = [batch.batch for batch in record.speed.batches]
        yield as_wanted(
            f"{record.directory}: batches", "in order" if batches == sorted(batches) else str(batches), "in order"
        )
        largest = record.speed.largest_batch
        if largest is not None and largest.found_inference is not None:
            best = record.speed.inference.batch
            yield at_least(f"{record.directory}: largest batch", largest.found_inference, best, why="the fastest one")


# -- each of several ranks ---------------------------------------------------------------------------------------------


def main(argv: list[str]) -> int:
    what, device = argv
    precision.set_up(threads=1)
    joined = DistributedRanks(device=device)
    results = {"exchange": exchange, "growth": growth}[what](joined)
    if joined.is_rank0:
        print(json.dumps([to_json(line) for line in results]), flush=True)
    joined.close()
    return EXIT_OK


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
