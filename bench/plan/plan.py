"""The difference between the cells that are wanted and those that are done, costed before anything runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.core import registry
from bench.core.spec import Cell
from bench.plan import estimate
from bench.plan.estimate import START_SECONDS, Calibration, DataSize, Rates
from bench.store.study import State, Study, state_of
from bench.train.schedule import images_trained


@dataclass(frozen=True, kw_only=True)
class PlannedCell:
    """One cell with its state and what is left to pay.

    Attributes:
        state: see bench.store.study.State.
        fraction: of its training done already.
        images, flops: of the whole cell, the shared trunk counted once. flops is per convention; None if not counted.
        seconds: what is left, on one worker of this machine. None for a cell that is done.
        evaluate_share: of the cell's time that goes into reading its horizons.
    """

    cell: Cell
    name: str
    state: str
    fraction: float
    images: int
    flops: dict[str, int] | None = None
    seconds: float | None = None
    evaluate_share: float = 0.0
    note: str | None = None


@dataclass(frozen=True, kw_only=True)
class Plan:
    """All cells of a study, and how they would be run."""

    suite: str
    scale: str
    store: Path
    cells: tuple[PlannedCell, ...]
    device: str
    workers: int
    threads: int
    ranks: int  # processes that make up a worker
    rates: dict[str, Rates]
    sizes: dict[str, DataSize]
    data_root: Path | None = None
    accelerator: str | None = None  # also to be costed on; None: where it is meant for one
    notes: tuple[str, ...] = ()  # where the study is not as the suite says
    known: dict[str, Any] = field(default_factory=dict, repr=False)  # for the workers: bench/cost/precomputed.py
    rates_age: float | None = None  # seconds since the oldest of them was measured; None: all measured for this plan

    @property
    def todo(self) -> tuple[PlannedCell, ...]:
        return tuple(cell for cell in self.cells if cell.state != "done")

    def count(self, state: str) -> int:
        return sum(cell.state == state for cell in self.cells)

    @property
    def seconds(self) -> float:
        """Expected wall time: the longest-first packing of what is left onto the workers, and their start."""
        loads = [0.0] * self.workers
        for cell in sorted(self.todo, key=lambda c: -(c.seconds or 0)):
            loads[loads.index(min(loads))] += cell.seconds or 0.0
        return max(loads) + START_SECONDS if self.todo else 0.0

    @property
    def measured(self) -> bool:
        """Whether the time is: what ranks lose to each other is not."""
        return self.ranks == 1 and all(rate.measured for rate in self.rates.values())


def order_key(planned: PlannedCell) -> tuple[bool, float]:
    """What has been started first, then the longest: short cells fill the gaps at the end."""
    return (planned.state != "partial", -(planned.seconds or 0.0))


def make(
    cells: list[Cell],
    *,
    suite: str,
    scale: str,
    store: Path,
    device: str,
    workers: int,
    threads: int,
    ranks: int = 1,
    data_root: Path | None = None,
    calibrate: bool = False,
    say: Callable[[str], None] = lambda _: None,
    tick: Callable[[int, int], None] = lambda *_: None,
) -> Plan:
    """Look at the store, calibrate what is missing, and cost it.

    Args:
        calibrate: measure the rates even where they are known from a short while ago.

    Raises:
        UserError: missing data, unknown names, a store from a newer version, …
    """
    study = Study(store)
    study.check()
    directories = [study.cell(cell) for cell in cells]
    found = [(cell, at.path.name, state_of(at)) for cell, at in zip(cells, directories, strict=True)]
    missing = [cell for cell, _, (state, *_rest) in found if state != "done"]
    sizes: dict[str, DataSize] = {}
    calibrated = Calibration(rates={}, known={})
    if missing:
        say("Looking at the data …")
        training = [cell for cell in missing if cell.job == "train"]
        sizes = estimate.data_sizes(training, root=data_root, absent_too=scale == "paper")
        estimate.check_images(training, sizes)
        calibrated = estimate.calibrate(
            training, sizes, device=device, threads=threads, workers=workers * ranks, anew=calibrate, say=say, tick=tick
        )
    planned = [_planned(cell, name, state, calibrated.rates, sizes, ranks) for cell, name, state in found]
    return Plan(
        suite=suite, scale=scale, store=store, cells=tuple(planned), device=device, workers=workers, threads=threads,
        ranks=ranks, rates=calibrated.rates, sizes=sizes, data_root=data_root, known=calibrated.known,
        rates_age=calibrated.age,
    )  # fmt: skip


def _planned(
    cell: Cell,
    name: str,
    state: State,
    rates: dict[str, Rates],
    sizes: dict[str, DataSize],
    ranks: int,
) -> PlannedCell:
    images = images_trained(cell.recipe, cell.horizons)
    common: dict[str, Any] = {"cell": cell, "name": name, "state": state[0], "fraction": state[1], "note": state[2]}
    if state[0] == "done":
        return PlannedCell(**common, images=images)
    if cell.job != "train":  # says itself how long it takes
        return PlannedCell(**common, images=0, seconds=registry.load("job", cell.job).expected_seconds(cell))
    rate = rates[estimate.model_key(cell, sizes[cell.data].classes)]
    evaluations = len(cell.horizons) * estimate.evaluation_images(cell, sizes) / rate.eval_images_per_second
    overhead = 0.5 + len(cell.horizons) * sum(0.25 for _ in cell.tasks)  # opening data; solving the probes
    training = images / (rate.train_images_per_second * ranks)  # exchanging gradients is taken to cost nothing
    seconds = (training + evaluations) * (1 - state[1]) + overhead
    share = (evaluations + overhead) / (training + evaluations + overhead)
    flops = {convention: per_image * images for convention, per_image in rate.train_flops_per_image.items()}
    return PlannedCell(**common, images=images, flops=flops, seconds=seconds, evaluate_share=share)
