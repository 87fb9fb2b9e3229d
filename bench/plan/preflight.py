"""Preflight checks: they refuse a study that would fail, before anything is measured or written."""

from __future__ import annotations

import math
import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from importlib.util import find_spec

from bench.core import environment
from bench.core.device import MPS_CONTROL, accelerators
from bench.core.errors import UserError, nearest, one_class, several_labels
from bench.core.files import explain
from bench.core.formatting import plural
from bench.core.metrics import check_several
from bench.cost import hardware, peaks
from bench.data.load import data_set
from bench.plan.sizes import DataSizes, evaluation_images
from bench.study import registry
from bench.study.cell import Cell
from bench.study.options import MPS_CELLS, Machine, Pricing, Where
from bench.study.suite import SCALES
from bench.train.schedule import WARMUP_PART, longest_warmup, total_steps, warmup_steps

NO_CLUSTER = "a cluster that RAY_ADDRESS names: HOST:6379, or local for one here, whose ports are open to the network"
MAX_PROCESSES_PER_CORE = 8  # limit, since each process holds torch and its own copy of the model


def resolve_scale(wanted: str, device: str) -> str:
    """Return the scale that a text names: for "auto", "cpu" on a CPU and "gpu" on other devices; any other scale as it
    is.

    Raises:
        UserError: there is no scale of this name.
    """
    if wanted == "auto":
        return "cpu" if device == "cpu" else "gpu"
    if wanted not in SCALES:
        close = nearest(wanted, SCALES)
        hint = f"Did you mean {close[0]!r}? " if close else ""
        raise UserError(f"Unknown scale {wanted!r}.", f"{hint}Allowed: auto, {', '.join(SCALES)}.")
    return wanted


def check_options(machine: Machine, pricing: Pricing, *, to_run: bool) -> None:
    """Refuse options that contradict each other, or mean nothing together.

    Args:
        to_run: whether the study will be run, not only planned.

    Raises:
        UserError: options contradict each other; the message says which, and what to give instead.
    """
    lacks = {
        "slurm": shutil.which("sbatch") is None and "SLURM's command sbatch: start it where jobs are submitted",
        "ray": (find_spec("ray") is None and "the package ray: pip install ray")
        or ("RAY_ADDRESS" not in os.environ and "ray" not in sys.modules and NO_CLUSTER),
    }.get(machine.executor)
    if to_run and lacks:
        raise UserError(f"--executor {machine.executor} needs {lacks}.", "Without --executor, this machine is used.")
    if pricing.cores and not pricing.hardware:
        raise UserError("--cores is of --hardware.", "Name the devices, e.g. --hardware 8xH100 --cores 16.")
    here = machine.executor == "local"
    if machine.detach and machine.executor != "slurm":
        raise UserError("--detach is for SLURM jobs: other workers end with this process.", "Give --executor slurm.")
    if machine.job and here:
        raise UserError(
            "--job says how a cluster is asked for workers, and this run has none.",
            "Give --executor slurm or --executor ray with it.",
        )
    if machine.ranks % machine.nodes or (here and machine.nodes > 1):
        raise UserError(
            f"--executor {machine.executor} cannot spread {machine.ranks} ranks over {machine.nodes} machines.",
            "Give --executor slurm, and --ranks that is a multiple of --nodes.",
        )
    if to_run and here and (pricing.hardware or pricing.price):
        raise UserError(
            "--hardware and --price are for plans and for clusters: they do not choose what a run here trains on.",
            f"To see what it would cost: vit-bench plan --hardware {pricing.hardware or '8xH100'} …; "
            "to run it, leave both out, also of the study file.",
        )


def check_pricing(pricing: Pricing, *, priced: bool) -> None:
    """Refuse a price that cannot be parsed, a price without named devices, and an unknown accelerator.

    Args:
        priced: whether a price is allowed, because devices are named or the study will be run.

    Raises:
        UserError: one of these was given; the message says what to name.
    """
    if pricing.accelerator:
        peaks.accelerator(pricing.accelerator)
    if pricing.price and not priced:
        raise UserError("--price needs --hardware.", "Name the devices, e.g. --hardware 8xH100.")
    if pricing.price:
        hardware.price(pricing.price)


def check_places(where: Where, *, write: bool) -> None:
    """Refuse a data root or a results folder that is not a folder. If `write`, also refuse a results folder that could
    not be made and written; no file is left behind.

    Raises:
        UserError: a folder is refused; the message says why.
    """
    if where.data_root is not None and not where.data_root.is_dir():
        raise UserError(f"--data-root {where.data_root} is not a folder.", "Create it, or give another.")
    results = where.results
    there = next(folder for folder in (results, *results.absolute().parents) if folder.exists())
    if not there.is_dir():
        raise UserError(f"{there} is a file, not a folder.", "Choose another folder with --results.")
    if not write:
        return
    try:
        with tempfile.TemporaryDirectory(dir=there):
            pass
    except OSError as error:
        raise explain(error, results) from error


def processes(machine: Machine, cells: Sequence[Cell], *, device: str, exclusive: bool) -> tuple[int, int]:
    """Return (number of workers, threads of each process), which share the machine's cores. A worker does one cell at a
    time; there is one for each core, or for each GPU.

    Workers on other machines have as many threads as they would have here, so that their results are the same.

    Args:
        exclusive: whether there has to be only one worker.

    Raises:
        UserError: the cells or the machine cannot serve the number of ranks, or there are too many processes for a CPU.
    """
    ranks, cores = machine.ranks, environment.cores()
    here = machine.executor == "local"
    if ranks > 1:
        _check_ranks(ranks, device if here else "cpu", cells)
    each = max(1, cores // ranks)
    devices = len(accelerators(device)) * _cells_per_device(machine, device)
    fitting = 1 if exclusive else each if device == "cpu" else max(1, devices // ranks)
    workers = min(machine.workers or fitting, len(cells))
    if here and device == "cpu" and workers * ranks > MAX_PROCESSES_PER_CORE * cores:
        raise UserError(
            f"{workers * ranks:,} processes on {cores} core(s) are too many.",
            f"Give --jobs and --ranks whose product is at most {MAX_PROCESSES_PER_CORE * cores}.",
        )
    return workers, max(1, each // workers)


def _cells_per_device(machine: Machine, device: str) -> int:
    """Return how many cells share each GPU, as --share says; 1 if cells share none.

    Raises:
        UserError: there is no GPU to share, or not in this way, or the number of cells is given twice.
    """
    if machine.share == "none":
        return 1
    if device != "cuda" or machine.executor != "local" or machine.ranks > 1:
        raise UserError(f"--share {machine.share} is for GPUs of this machine, and runs of one rank.", "Leave it out.")
    if machine.share != "mps":
        if machine.workers:
            raise UserError("--share N and --jobs both say how many runs there are at once.", "Give one of them.")
        return int(machine.share)
    if shutil.which(MPS_CONTROL) is None:
        raise UserError(f"--share mps needs NVIDIA's {MPS_CONTROL}.", "Without it, --share 4 puts four runs on each.")
    return MPS_CELLS


def workers_on(count: int, machine: Machine, cells: Sequence[Cell]) -> int:
    """Return how many cells run at a time on `count` devices of other machines.

    Raises:
        UserError: there are more ranks (processes that train a cell together) than devices, or a cell cannot be trained
            by so many.
    """
    if machine.ranks > count:
        raise UserError(f"--ranks {machine.ranks}, but --hardware names {count} device(s).", f"Use --ranks {count}.")
    if machine.ranks > 1:
        from bench.train.ranks import check_cells

        check_cells(cells, ranks=machine.ranks)
    return machine.workers or max(1, count // machine.ranks)


def _check_ranks(ranks: int, device: str, cells: Sequence[Cell]) -> None:
    from bench.train.ranks import check_cells

    check_cells(cells, ranks=ranks)
    if any(name.startswith("MIG-") for name in accelerators(device)):  # NCCL: "Duplicate GPU detected"
        raise UserError(
            f"--ranks {ranks}, but the parts of a divided GPU (MIG) cannot exchange gradients.",
            "Leave --ranks out: each part then does runs of its own.",
        )
    if device != "cpu" and ranks > (count := len(accelerators(device)) or 1):  # an Apple GPU, without an id, is one
        raise UserError(f"--ranks {ranks}, but this machine has {count} GPU(s).", f"Use --ranks {count} at most.")


def check_data(cells: Sequence[Cell], sizes: DataSizes) -> None:
    """Refuse cells whose data sets are too small or unsuited for their training or their tasks. Opens every set that
    the cells read.

    Raises:
        UserError: a set that is not here (the message says how to get it), has one class only, has images of several
            labels where one is needed, or is smaller than a cell or a task asks.
    """
    for cell in cells:
        trained_on = (cell.data,) if cell.horizons != (0,) else ()
        for name in (*trained_on, *(task.data for task in cell.tasks)):
            if sizes[name].classes < 2:
                raise one_class(name)
        _check_labels(cell, sizes)
        size = sizes[cell.data]
        if cell.num_images is not None and cell.num_images > size.train:
            raise data_set(cell.data).too_few(cell.data, asked=cell.num_images, there=size.train)
        evaluation_images(cell, sizes)


def _check_labels(cell: Cell, sizes: DataSizes) -> None:
    """Refuse images of several labels for a training, task or metric that decides on one label.

    Raises:
        UserError: such images are given to one; the message says which.
    """
    if cell.horizons != (0,) and sizes[cell.data].several:
        raise several_labels(cell.data, for_what="pre-training")
    for task in cell.tasks:
        if not sizes[task.data].several:
            continue
        if not registry.load("task", task.task).several_labels:
            raise several_labels(task.data, for_what=f"the task {task.task}")
        check_several(task.kwargs.get("metrics", ()), name=task.data)


def check_warmup(cells: Sequence[Cell]) -> None:
    """Refuse a warm-up of more than a quarter of a cell's shortest budget: the learning rate that is compared would
    hardly be reached. A warm-up is never shortened for one cell alone, because the cell would then differ from those
    that it is compared with.

    Raises:
        UserError: a warm-up is refused; the message says of which model, and what to set.
    """
    trained = [cell for cell in cells if cell.job == "train" and any(cell.horizons)]
    most = {cell: longest_warmup(cell.horizons, cell.recipe.batch) or 0 for cell in trained}
    short = [cell for cell in trained if warmup_steps(cell.recipe) > most[cell]]
    if not short:
        return
    worst = max(short, key=lambda cell: warmup_steps(cell.recipe) / (most[cell] + 1))
    batch, steps = worst.recipe.batch, warmup_steps(worst.recipe)
    budget = min(h for h in worst.horizons if h)
    least = WARMUP_PART * steps * batch
    others = f" So it is in {plural(len(short) - 1, 'other run')}." if len(short) > 1 else ""
    raise UserError(
        f"{worst.model} on {worst.data_name}: a warm-up of {steps * batch:,} images ({plural(steps, 'step')}) is more "
        f"than a quarter of the shortest budget, {budget:,} images ({plural(total_steps(budget, batch), 'step')})."
        + others,
        f"Give --set warmup={min(most[cell] * cell.recipe.batch for cell in trained)}, which every run here allows, "
        f"or --horizons {math.ceil(10 * least / budget) / 10:g} times as long ({least:,} images of this run).",
    )


def check_present(cells: Sequence[Cell], sizes: DataSizes) -> None:
    """Refuse to begin trainings if none of their upstream (pre-training) sets is on this machine; only their cost can
    be estimated.

    Raises:
        UserError: none is here; the message says how to get the first of them.
    """
    asked = dict.fromkeys(cell.data for cell in cells)
    unseen = [name for name in asked if sizes[name].shape is None]
    absent = [name for name in unseen if not data_set(name).available(sizes.root)]
    if absent and len(absent) == len(asked):
        raise UserError(
            f"{', '.join(absent)} is not on this machine: the study can be planned (--plan) but not run.",
            data_set(absent[0]).how_to_get,
        )
