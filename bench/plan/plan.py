"""A plan: which cells of a study are done, the remaining work, and its expected cost on this machine."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.core import registry
from bench.core.cell_state import CellState
from bench.core.device import sharing
from bench.core.registry import directory_name
from bench.core.spec import Cell, to_json
from bench.cost import peaks
from bench.data.readable import allow_unreadable
from bench.data.rehearsed import rehearsing
from bench.plan import cost_model, notes, preflight, repeats, resources
from bench.plan.changed import Change, changes, error_for
from bench.plan.cost_model import (
    HOUR,
    NOTHING_MEASURED,
    QUIET,
    CostModel,
    RemainingCost,
    RemainingWork,
    StudyCost,
    packed,
)
from bench.plan.estimate import Calibration, Reporter
from bench.plan.expand import expand
from bench.plan.grouped import name_groups
from bench.plan.options import StudyOptions
from bench.plan.repeats import RepeatedImages
from bench.plan.resources import Disk
from bench.plan.sizes import DataSizes
from bench.plan.study_cells import StudyCells
from bench.store.study import State, Study, state_of
from bench.suites import suite as suites
from bench.train.schedule import images_trained

if TYPE_CHECKING:
    from bench.cost.hardware import Hardware
    from bench.plan.price import Price

START_SECONDS = 4.0  # a worker's start: interpreter, torch, first data set


@dataclass(frozen=True, kw_only=True)
class PlannedCell(RemainingCost):
    """One cell with its state and remaining cost.

    Attributes:
        cell: what is trained.
        name: of its folder.
        state: how far it is.
        fraction: of its training done already.
        images: of the whole cell, the shared trunk counted once.
        note: on its state, a sentence.
        epochs: how often it sees each image, up to its longest horizon.
        deadly: whether its last processes were killed, see `bench.store.study.State`.
    """

    cell: Cell
    name: str
    state: CellState
    fraction: float
    images: int
    note: str | None = None
    epochs: float = 0.0
    deadly: bool = False

    @property
    def flops_left(self) -> float:
        """Dense count."""
        return (self.flops or {}).get("dense", 0) * (1 - self.fraction)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The cells of a run, and how they would be run.

    Attributes:
        suite: its name.
        question: of the suite.
        scale: "cpu", "gpu" or "paper".
        store: folder of the study.
        cells: of this run.
        device: "cpu", "cuda" or "mps".
        workers: cells at a time.
        threads: of each process.
        ranks: processes that make up a worker.
        share: of a GPU by cells, see `bench.plan.options`.
        grid: names of all cells of the study, whatever `--only` leaves out of this run.
        data_root: folder with data sets that do not come with the installation.
        device_reason: why the device was chosen.
        accelerator: also to be costed on; None: where the scale is meant for one.
        calibration: rates that the costs rest on.
        asked: the study file that asks for it, with the scale resolved.
        notes: deviations from the suite, and warnings.
        accepted: results of other code, or of other images, than there are now, to be taken as they are.
        hardware: devices that it is made for, where they are not this machine's.
        per_hour: what an hour of theirs costs, see `bench.cost.hardware.price`.
        elsewhere: what is left, on one accelerator; None for a small study of scale `cpu`.
        retry: the state of cells that are run alone.
        most: cells of this run, at most.
        downstream: the sets that were named to judge models on.
    """

    suite: str
    question: str
    scale: str
    store: Path
    cells: tuple[PlannedCell, ...]
    device: str
    workers: int
    threads: int
    ranks: int
    share: str = "none"
    grid: tuple[str, ...] = ()
    data_root: Path | None = None
    device_reason: str = ""
    accelerator: str | None = None
    calibration: Calibration = NOTHING_MEASURED
    asked: str = ""
    notes: tuple[str, ...] = ()
    accepted: tuple[Change, ...] = ()
    hardware: Hardware | None = None
    per_hour: tuple[float, bool] | None = None
    elsewhere: Price | None = None
    retry: str | None = None
    most: int | None = None
    downstream: tuple[str, ...] = ()

    @property
    def todo(self) -> tuple[PlannedCell, ...]:
        """Cells that are not done and can be: partly done ones first, then the longest, so that short ones fill the
        gaps at the end. Those that killed their processes come last: whatever they end, the others are done."""
        left = (cell for cell in self.cells if cell.state not in (CellState.DONE, CellState.REFUSED))
        wanted = (cell for cell in left if self.retry in (None, cell.state))
        order = sorted(wanted, key=lambda c: (c.deadly, c.state != CellState.PARTIAL, -(c.seconds or 0.0)))
        return tuple(order)[: self.most]

    @property
    def rehearsal(self) -> bool:
        """Whether its cells are cut, and nothing of their cost is known."""
        return any(cell.cell.rehearsal for cell in self.cells)

    @property
    def on_gpu(self) -> bool:
        """Whether workers are meant for an accelerator, here or elsewhere."""
        return self.device == "cuda" or self.accelerator is not None

    def count(self, state: CellState) -> int:
        """Cells in a state."""
        return sum(cell.state == state for cell in self.cells)

    @property
    def seconds(self) -> float:
        """Expected wall time: the longest-first packing of what is left onto the workers, and their start."""
        return packed([cell.seconds or 0.0 for cell in self.todo], self.workers) + START_SECONDS if self.todo else 0.0

    @property
    def seconds_in_turns(self) -> float:
        """As `seconds`, where cells that share a GPU gain nothing by it."""
        each = sharing(self.device, self.workers * self.ranks)
        return packed([cell.seconds or 0.0 for cell in self.todo], max(1, self.workers // each)) + START_SECONDS

    @property
    def priced(self) -> Price | None:
        """The price of the rest on the hardware that was named."""
        if self.hardware is None:
            return None
        from bench.plan import price

        return price.of(self.todo, hardware=self.hardware, ranks=self.ranks, wall=self.seconds, asked=self.per_hour)

    @property
    def disk(self) -> Disk:
        """Bytes on the disk that the rest needs."""
        return resources.disk([c.needs for c in self.todo if c.needs is not None], running=self.workers)

    @property
    def repeated(self) -> tuple[RepeatedImages, ...]:
        """Sets whose images are seen more often than `MAX_EPOCHS`, most often first."""
        return repeats.find(self.todo)

    @property
    def measured(self) -> bool:
        """Whether the time is: what ranks lose to each other is not."""
        return self.ranks == 1 and all(rates.measured for rates in self.calibration.rates.values())

    def utilisation(self, cells: Iterable[PlannedCell]) -> float | None:
        """Of the named devices' peak, while the rest of these cells occupies them: also while they wait for images or
        for each other. None where none are named, or nothing is left."""
        hours, flops = sum(cell.device_hours or 0.0 for cell in cells), sum(cell.flops_left for cell in cells)
        return (
            None
            if self.hardware is None or not hours
            else flops / (hours * HOUR * self.hardware.device.tera["bfloat16"] * peaks.TERA)
        )

    def json(self) -> dict[str, Any]:
        """As JSON types."""
        return {
            "suite": self.suite,
            "scale": self.scale,
            "device": self.device,
            "workers": self.workers,
            "threads": self.threads,
            "ranks": self.ranks,
            "expected_seconds": self.seconds,
            "calibrated": self.measured,
            "rates_age_seconds": self.calibration.age,
            "notes": list(self.notes),
            "disk": self.disk.json(),
            "repeated": [asdict(part) for part in self.repeated],
            "cells": [
                {
                    "name": c.name,
                    "state": c.state,
                    "fraction": c.fraction,
                    "images": c.images,
                    "epochs": c.epochs,
                    "flops": c.flops,
                    "seconds": c.seconds,
                    "needs": None if c.needs is None else asdict(c.needs),
                    "note": c.note,
                    "device_hours": c.device_hours,
                    "error": c.error,
                    "basis": c.basis,
                    "utilisation": self.utilisation([c]),
                    "cell": to_json(c.cell),
                }
                for c in self.cells
            ],
            "elsewhere": None if self.elsewhere is None else self.elsewhere.json(),
            "price": None if self.priced is None else self.priced.json(),
            "rates": [asdict(rates) for rates in self.calibration.rates.values()],
        }


def make_plan(options: StudyOptions, *, to_run: bool, report: Reporter = QUIET, as_new: bool = False) -> Plan:
    """Every cell of the suite after all passes, with its state in the store and the cost of what is left of it.

    Args:
        to_run: whether the plan will be run: problems that would make the run fail are then raised before measuring.
        as_new: as if nothing of it had been done.

    Raises:
        UserError: unknown names, missing data, a store from a newer version, --hardware of a plan to be run, …
    """
    with rehearsing(options.rehearse):
        return _make_plan(options, to_run=to_run, report=report, as_new=as_new)


def _make_plan(options: StudyOptions, *, to_run: bool, report: Reporter, as_new: bool) -> Plan:
    preflight.check_options(options, to_run=to_run)
    _set_for_this_process(options)
    suite = suites.load(options.suite)
    options, grouped = name_groups(options)
    options, model = cost_model.choose(options, to_run=to_run)
    preflight.check_price(options, priced=model.hardware is not None or to_run)
    sizes = DataSizes(root=options.data_root, published=options.scale == "paper" or options.rehearse)
    study = expand(suite, options, sizes, device_name=options.accelerator or _device_name(model), notes=grouped)
    preflight.check_warmup(study.chosen)
    preflight.check_places(options, write=to_run)
    states, accepted = _states(study.chosen, options, to_run=to_run, as_new=as_new)
    left = RemainingWork(
        options=options,
        cells=study.chosen,
        fractions={cell: state.fraction for cell, state in states.items() if state.name != CellState.DONE},
        sizes=sizes,
        exclusive=suite.exclusive,
        to_run=to_run,
        report=report,
    )
    _check_training(left)
    cost = model.cost(left)
    cells = tuple(_planned(cell, state, cost.cells.get(cell), sizes) for cell, state in states.items())
    known = cost.calibration.rates
    said = (*study.notes, *notes.costly(study, known, sizes), *notes.short_sighted(study.chosen, known, sizes))
    return _assembled(suite, options, model, replace(study, notes=said), cells, cost, accepted)


def _set_for_this_process(options: StudyOptions) -> None:
    for folder in options.plugins:
        registry.add_plugins(folder)
    if options.max_unreadable is not None:
        allow_unreadable(options.max_unreadable)


def _device_name(model: CostModel) -> str:
    """The accelerator that the hours of scale `gpu` are of."""
    row = model.hardware.device if model.hardware is not None else peaks.accelerator_of(model.reason)
    return row.name if row is not None else "H100"


def _states(
    cells: Sequence[Cell], options: StudyOptions, *, to_run: bool, as_new: bool
) -> tuple[dict[Cell, State], tuple[Change, ...]]:
    """The state of every cell in the store, and results of changed code, or images, that are to be taken as they are.

    Raises:
        UserError: a store from a newer version; a run that would reuse results of changed code, or images, without a
            word.
    """
    study = Study(options.store)
    study.check()
    if as_new:
        return {cell: State(CellState.MISSING, 0.0, None) for cell in cells}, ()
    directories = [study.cell(cell) for cell in cells]
    states = [state_of(directory) for directory in directories]
    changed = changes(cells, directories, states, root=options.data_root)
    if options.changed == "keep":
        return dict(zip(cells, states, strict=True)), changed
    if changed and to_run and options.changed == "refuse":
        raise error_for(changed)
    redo = {change.directory for change in changed}
    again = State(CellState.CHANGED, 0.0, None)
    return {
        cell: again if directory in redo else state
        for cell, directory, state in zip(cells, directories, states, strict=True)
    }, ()


def _check_training(left: RemainingWork) -> None:
    """Raises: UserError, where data are missing or too small, or do not fit."""
    if not left.training or left.options.rehearse:
        return
    left.report.message("Checking the data …")
    if left.to_run:
        resources.check_room(left.training, left.sizes)
    preflight.check_data(left.training, left.sizes)
    if left.to_run:
        preflight.check_present(left.training, left.sizes)


def _planned(cell: Cell, state: State, cost: RemainingCost | None, sizes: DataSizes) -> PlannedCell:
    """A cell with its state and what is left of it; `cost` is None of one that is done."""
    known = {} if cost is None else {entry.name: getattr(cost, entry.name) for entry in fields(cost)}
    refused, longest = cost is not None and cost.refused is not None, cell.horizons[-1]
    trained = cost is not None and not refused and longest and not cell.rehearsal
    return PlannedCell(
        cell=cell,
        name=directory_name(cell),
        state=CellState.REFUSED if refused else state.name,
        fraction=state.fraction,
        note=f"cannot be run: {known['refused']}" if refused else state.note,
        images=images_trained(cell.recipe, cell.horizons),
        epochs=longest / (cell.num_images or sizes[cell.data].train) if trained else 0.0,
        deadly=state.deadly,
        **known,
    )


def _assembled(
    suite: suites.Suite,
    options: StudyOptions,
    model: CostModel,
    study: StudyCells,
    cells: tuple[PlannedCell, ...],
    cost: StudyCost,
    accepted: tuple[Change, ...],
) -> Plan:
    """The plan, with its notes: deviations from the suite first, behind a warning of too little disk."""
    left = [c.cell for c in cells if c.state not in (CellState.DONE, CellState.REFUSED)]
    plan = Plan(
        suite=suite.name,
        question=suite.question,
        scale=options.scale,
        store=options.store,
        cells=cells,
        device=model.device,
        workers=cost.workers,
        threads=cost.threads,
        ranks=cost.ranks,
        share=options.share,
        data_root=options.data_root,
        hardware=model.hardware,
        per_hour=_per_hour(options),
        elsewhere=cost.elsewhere,
        downstream=tuple(dict.fromkeys(task.data for cell in study.cells for task in cell.tasks))
        if options.downstream
        else (),
        device_reason=model.reason,
        accelerator=options.accelerator,
        calibration=cost.calibration,
        grid=tuple(map(directory_name, study.cells)),
        asked=options.to_toml(),
        notes=(
            *study.notes,
            *notes.absent(suite, options, study.chosen),
            *notes.unswept(options, left),
            *notes.part_of_a_run(options),
            *filter(None, [cost.proposal]),
        ),
        accepted=accepted,
        retry=options.retry,
        most=options.max_cells,
    )
    warning = "" if model.hardware is not None else resources.too_little_disk(plan.disk, plan.store)
    return replace(plan, notes=(warning, *plan.notes)) if warning else plan


def _per_hour(options: StudyOptions) -> tuple[float, bool] | None:
    """The price of an hour that --price says; see `bench.cost.hardware.price`."""
    if not options.price:
        return None
    from bench.cost import hardware

    return hardware.price(options.price)
