"""What a study will cost, before it runs: from a few seconds of the real training step on this machine."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.core import registry
from bench.core.errors import UserError
from bench.core.spec import Cell, canonical, to_json
from bench.core.subprocesses import child_environment
from bench.cost import precomputed
from bench.data.load import check_shape, load
from bench.data.public import SIZES
from bench.plan.kept_rates import KeptRates

BUSY = 0.7  # share of a processor below which others are taken to be using it
START_SECONDS = 4.0  # a worker's start: interpreter, torch, first data set


@dataclass(frozen=True, kw_only=True)
class DataSize:
    """Sizes of a data set's two splits; (height, width, channels) of its images, None where nobody looked at them."""

    train: int
    test: int
    classes: int
    shape: tuple[int, ...] | None = None


@dataclass(frozen=True, kw_only=True)
class Rates:
    """Speed and cost of one model on this machine, one worker, all workers busy.

    `measured` is False where the rate was derived from the FLOPs and an assumed utilisation, which `basis` then states.
    """

    train_images_per_second: float
    eval_images_per_second: float
    train_flops_per_image: dict[str, int]
    params: int
    measured: bool
    basis: str
    share: float = 1.0  # of a processor, that the measurement got


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """Rates of every distinct model, and what else was found that workers can be spared (bench/cost/precomputed.py).

    Attributes:
        age: seconds since the oldest of it was found; None where all of it was found now.
    """

    rates: dict[str, Rates]
    known: dict[str, Any]
    age: float | None = None


def model_key(cell: Cell, classes: int) -> str:
    """What a rate depends on."""
    shape = [cell.model, to_json(cell.model_options), cell.image_size, cell.channels, classes]
    return canonical([*shape, cell.recipe.batch, cell.recipe.dtype])


def data_sizes(cells: list[Cell], *, root: Path | None, absent_too: bool = False) -> dict[str, DataSize]:
    """Sizes of every data set that the cells read. Loads (and caches) them: a missing one is reported here.

    Args:
        absent_too: take the published sizes of sets that are not here: a study can be costed before they are fetched.

    Raises:
        UserError: a data set is missing, with how to get it; or too small for what a cell or its tasks ask.
    """
    names = {cell.data for cell in cells} | {task.data for cell in cells for task in cell.tasks}
    sizes = {}
    for name in sorted(names):
        module = registry.load("data set", name)
        if (known := _known_size(name, module, root, absent_too=absent_too)) is not None:
            sizes[name] = known
            continue
        train, test = load(name, "train", root=root), load(name, "test", root=root)
        shape = train.images_NHWC.shape[1:]
        sizes[name] = DataSize(train=len(train), test=len(test), classes=train.num_classes, shape=shape)
    for cell in cells:
        told_apart = [*((cell.data,) if cell.horizons != (0,) else ()), *(task.data for task in cell.tasks)]
        for name in (name for name in told_apart if sizes[name].classes < 2):
            raise UserError(
                f"{name} has images of one class only: there is nothing to tell apart.",
                "Give a folder of images for each of two classes or more.",
            )
        if cell.num_images is not None and cell.num_images > sizes[cell.data].train:
            raise UserError(
                f"{cell.data}@{cell.num_images}: {cell.data} has only {sizes[cell.data].train} training images.",
                f"Ask for at most {cell.data}@{sizes[cell.data].train}.",
            )
        evaluation_images(cell, sizes)  # says what a task cannot do, before anything is measured
    return sizes


def check_images(cells: list[Cell], sizes: dict[str, DataSize]) -> None:
    """Refuse cells whose models take other images than their upstream set holds, as far as those were looked at.

    Raises:
        UserError: the name under which the set has such images.
    """
    for cell in cells:
        if (shape := sizes[cell.data].shape) is not None:
            check_shape(cell.data, shape, image_size=cell.image_size, channels=cell.channels)


def _known_size(name: str, module: Any, root: Path | None, *, absent_too: bool) -> DataSize | None:
    """What needs no look: declared by a set that is too large for one (or not public), or published."""
    declared = getattr(module, "SIZE", None)
    if not isinstance(declared, dict):
        base = name.partition(":")[0]
        if not absent_too or module.available(root) or base not in SIZES:
            return None
        declared = dict(zip(("train", "test", "classes"), SIZES[base], strict=True))
    return DataSize(**declared)


def evaluation_images(cell: Cell, sizes: dict[str, DataSize]) -> int:
    """Images that pass through the network to read one horizon.

    Raises:
        UserError: a task that can be seen to find nothing in images of such numbers.
    """
    total = sizes[cell.data].test
    for task in cell.tasks:
        size = sizes[task.data]
        asked = {"num_train": size.train, "num_test": size.test, "num_classes": size.classes}
        asked |= {"own_size": cell.image_size, **task.kwargs}
        num_images = getattr(registry.load("task", task.task), "num_images", None)  # a task may say; else all of them
        try:
            total += num_images(**asked) if num_images else size.train + size.test
        except UserError as error:
            raise UserError(f"{task.task} on {task.data}: {error.what}", error.fix) from error
    return total


def _jobs(cells: list[Cell], sizes: dict[str, DataSize], *, device: str) -> dict[str, dict[str, Any]]:
    """What `bench.plan.calibrate` is asked, by what a rate depends on."""
    jobs: dict[str, dict[str, Any]] = {}
    for cell in cells:
        size = sizes[cell.data]
        measure = size.shape is not None or device != "cpu"
        jobs[model_key(cell, size.classes)] = {"cell": to_json(cell), "classes": size.classes, "measure": measure}
    return jobs


def calibrate(
    cells: list[Cell], sizes: dict[str, DataSize], *, device: str, threads: int, workers: int, anew: bool = False,
    say: Callable[[str], None] = lambda _: None, tick: Callable[[int, int], None] = lambda *_: None,
) -> Calibration:
    """Rates of every distinct model: as kept from a short while ago on this machine (bench/plan/kept_rates.py), else
    measured by `workers` processes at once as the study will run.

    A processor is not asked how fast it would train on images that are not here: that is derived from the FLOPs.

    Args:
        anew: measure what is kept as well.
        tick: told (models done, of how many that are measured).

    Raises:
        UserError: a model cannot be built for its data.
    """
    jobs = _jobs(cells, sizes, device=device)
    if not jobs:
        return Calibration(rates={}, known={})
    shelf = KeptRates(device=device, threads=threads, processes=workers)
    kept = {} if anew else {key: found for key, job in jobs.items() if (found := shelf.find(job))}
    answers = {key: answer for key, (answer, _) in kept.items()}
    if missing := {key: job for key, job in jobs.items() if key not in kept}:
        say("Calibrating on this machine …")
        measured = _measure(missing, device=device, threads=threads, processes=workers, tick=tick)
        for key, answer in measured.items():
            if answer["rates"].get("share", 1.0) >= BUSY:  # what neighbours disturbed holds for this moment only
                shelf.keep(jobs[key], answer)
        answers |= measured
    return Calibration(
        rates={key: Rates(**answers[key]["rates"]) for key in jobs},
        known=precomputed.merge(answers[key]["known"] for key in jobs),
        age=max((age for _, age in kept.values()), default=None),
    )


def _measure(
    jobs: dict[str, dict[str, Any]], *, device: str, threads: int, processes: int, tick: Callable[[int, int], None]
) -> dict[str, dict[str, Any]]:
    """The answers of `bench.plan.calibrate`. With fewer jobs than processes some are done twice: a rate is that of a
    worker with its neighbours, however few models are left to measure."""
    asked = list(jobs.items())
    shares = [dict(asked[i::processes] or [asked[i % len(asked)]]) for i in range(processes)]
    command = [sys.executable, "-m", "bench.plan.calibrate", "--device", device, "--threads", str(threads)]
    errors = [tempfile.TemporaryFile("w+") for _ in shares]  # noqa: SIM115 - live as long as the processes
    running = [
        subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=file, text=True,
            env=child_environment(threads),
        )
        for file in errors
    ]  # fmt: skip
    for process, share in zip(running, shares, strict=True):
        assert process.stdin is not None
        process.stdin.write(json.dumps(share))
        process.stdin.close()
        process.stdin = None
    answers: dict[str, dict[str, Any]] = {}

    def read(process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            answer = json.loads(line)
            if (key := answer.pop("key")) not in answers:
                answers[key] = answer
                tick(len(answers), len(jobs))

    with ThreadPoolExecutor(len(running)) as pool:
        try:
            list(pool.map(read, running))
        except BaseException:  # Ctrl-C, or a signal to this process alone: nobody waits for their answers
            for process in running:
                process.kill()
            raise
    for process, file in zip(running, errors, strict=True):
        if process.wait():
            file.seek(0)
            text = file.read().strip().removeprefix("error: ")
            raise UserError(text.splitlines()[-1] if "Traceback" in text else text or "The calibration failed.")
    return answers
