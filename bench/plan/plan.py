"""A plan: which cells of a study are done, which work is left, and its expected cost on this machine or on devices that
were named. A cell is one training run with its evaluations."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.core.cell_state import CellState
from bench.core.device import sharing
from bench.cost import peaks
from bench.data.rehearsed import rehearsing
from bench.plan import cost_model, forecast_at, notes, preflight, repeats, resources
from bench.plan.changed import Change, changes, error_for
from bench.plan.cost_model import (
    HOUR,
    QUIET,
    CostModel,
    RemainingCost,
    RemainingWork,
    StudyCost,
    packed,
)
from bench.plan.estimate import Reporter
from bench.plan.expand import expand
from bench.plan.grouped import name_groups
from bench.plan.repeats import RepeatedImages
from bench.plan.resources import Disk
from bench.plan.sizes import DataSizes
from bench.plan.study_cells import StudyCells
from bench.store.study import State, Study, state_of
from bench.study import suite as suites
from bench.study.cell import Cell, to_json
from bench.study.options import Machine, Pricing, Selection, StudyOptions, What, Where
from bench.study.registry import directory_name
from bench.train.schedule import images_trained

if TYPE_CHECKING:
    from bench.cost.hardware import Hardware
    from bench.plan.price import Price

NO_CELLS = StudyCells(cells=())
START_SECONDS = 4.0  # a worker's start: interpreter, torch, first data set


@dataclass(frozen=True, kw_only=True)
class PlannedCell(RemainingCost):
    """One cell with its state and the cost of what is left of it.

    Attributes:
        cell: what is trained.
        name: name of its folder.
        state: how far it is: missing, partly done, done, failed, …
        fraction: fraction of its training that is done already.
        images: training images of the whole cell, with the trunk (the part of the training that its budgets share)
            counted once.
        note: a sentence on its state; None: there is nothing to say.
        epochs: how often it sees each image, up to its longest horizon (budget); 0 if it trains nothing.
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
        """Training FLOPs of what is left, by the dense convention; 0 if they were not counted."""
        return (self.flops or {}).get("dense", 0) * (1 - self.fraction)


@dataclass(frozen=True, kw_only=True)
class PlannedStudy:
    """The study that is planned.

    Attributes:
        suite: the design of the study.
        what: the options that describe the study; their scale is not "auto".
        where: the options that name its folders.
        cells: the suite's cells after every pass, and notes on how they differ from the suite.
        asked: text of the study file (TOML) that describes the study, with a scale that is not "auto".
    """

    suite: suites.Suite
    what: What
    where: Where
    cells: StudyCells = NO_CELLS
    asked: str = ""

    @property
    def store(self) -> Path:
        """The study's folder."""
        return self.where.store(self.what)

    @property
    def grid(self) -> tuple[str, ...]:
        """Names of all cells of the study, whatever `--only` leaves out of this run."""
        return tuple(map(directory_name, self.cells.cells))

    @property
    def downstream(self) -> tuple[str, ...]:
        """The data sets that models are evaluated on, where the user named them; else empty."""
        judged = (task.data for cell in self.cells.cells for task in cell.tasks)
        return tuple(dict.fromkeys(judged)) if self.what.downstream else ()


@dataclass(frozen=True, kw_only=True)
class PlannedMachine:
    """The devices that a plan is made for.

    Attributes:
        device: "cpu", "cuda" or "mps".
        reason: a few words on why the device was chosen.
        hardware: devices that are planned for, where they are not this machine's.
        asked: the options that say how cells are spread over them.
        pricing: the options that say what they cost.
    """

    device: str
    asked: Machine
    pricing: Pricing
    reason: str = ""
    hardware: Hardware | None = None

    @property
    def per_hour(self) -> tuple[float, bool] | None:
        """The price of an hour that --price states: (amount, whether it is for one device rather than for all). None
        without --price."""
        if not self.pricing.price:
            return None
        from bench.cost import hardware

        return hardware.price(self.pricing.price)

    @property
    def share(self) -> str:
        """How cells share a GPU: "none", "mps", or how many cells each GPU gets; see the option --share."""
        return self.asked.share

    @property
    def on_gpu(self) -> bool:
        """Whether workers are meant for an accelerator, here or elsewhere."""
        return self.device == "cuda" or self.pricing.accelerator is not None


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The cells of a run, and how they would be run.

    Attributes:
        study: the study that is planned.
        cells: the cells of this run, each with its state and its cost.
        cost: how the work is spread, and the throughputs that costs rest on.
        machine: the devices that the plan is made for.
        selection: the options that say which of the cells are done now.
        accepted: results made with other code or images than there are now, which are to be taken as they are.
    """

    study: PlannedStudy
    cells: tuple[PlannedCell, ...]
    cost: StudyCost
    machine: PlannedMachine
    selection: Selection
    accepted: tuple[Change, ...] = ()

    @property
    def suite(self) -> str:
        """The suite's name."""
        return self.study.suite.name

    @property
    def scale(self) -> str:
        """The study's scale: "cpu", "gpu" or "paper"."""
        return self.study.what.scale

    @property
    def store(self) -> Path:
        """The study's folder."""
        return self.study.store

    @property
    def todo(self) -> tuple[PlannedCell, ...]:
        """The cells that this run will do, in order: partly done ones first, then the longest, so that short ones fill
        the gaps at the end. Cells that killed their processes come last, so that the others are done even if they kill
        more."""
        left = (cell for cell in self.cells if cell.state not in (CellState.DONE, CellState.REFUSED))
        wanted = (cell for cell in left if self.selection.retry in (None, cell.state))
        order = sorted(wanted, key=lambda c: (c.deadly, c.state != CellState.PARTIAL, -(c.seconds or 0.0)))
        return tuple(order)[: self.selection.max_cells]

    @property
    def rehearsal(self) -> bool:
        """Whether this is a rehearsal: its cells are cut down, and nothing of their cost is known."""
        return any(cell.cell.rehearsal for cell in self.cells)

    def count(self, state: CellState) -> int:
        """Return the number of cells in a state."""
        return sum(cell.state == state for cell in self.cells)

    @property
    def seconds(self) -> float:
        """Expected seconds of wall time, from the start of the workers until all cells are done, with the longest cells
        first; 0 if nothing is left."""
        return (
            packed([cell.seconds or 0.0 for cell in self.todo], self.cost.workers) + START_SECONDS if self.todo else 0.0
        )

    @property
    def seconds_in_turns(self) -> float:
        """Expected seconds of wall time if cells that share a GPU gain nothing by it, as if they took turns."""
        each = sharing(self.machine.device, self.cost.workers * self.cost.ranks)
        return packed([cell.seconds or 0.0 for cell in self.todo], max(1, self.cost.workers // each)) + START_SECONDS

    @property
    def priced(self) -> Price | None:
        """The price of what is left on the devices that were named; None if none were."""
        if self.machine.hardware is None:
            return None
        from bench.plan import price

        return price.of(
            self.todo,
            hardware=self.machine.hardware,
            ranks=self.cost.ranks,
            wall=self.seconds,
            asked=self.machine.per_hour,
        )

    @property
    def disk(self) -> Disk:
        """What the cells that are left need on the disk, in bytes."""
        return resources.disk([c.needs for c in self.todo if c.needs is not None], running=self.cost.workers)

    @property
    def repeated(self) -> tuple[RepeatedImages, ...]:
        """Data sets whose images the cells that are left see more than `MAX_EPOCHS` times; the set that is seen most
        often comes first."""
        return repeats.find(self.todo)

    @property
    def measured(self) -> bool:
        """Whether the expected time rests on measurements alone. It does not with several ranks (processes that train a
        cell together), whose losses to each other are assumed, or with a cost model without throughputs."""
        rates = self.cost.calibration.rates.values()
        return self.cost.ranks == 1 and bool(rates) and all(rate.measured for rate in rates)

    def utilisation(self, cells: Iterable[PlannedCell]) -> float | None:
        """Return the fraction of the named devices' peak FLOP/s that cells use in the time that they occupy devices,
        including waits for images or for each other. Only what is left of the cells counts. None if no devices were
        named, or nothing is left."""
        hours, flops = sum(cell.device_hours or 0.0 for cell in cells), sum(cell.flops_left for cell in cells)
        return (
            None
            if self.machine.hardware is None or not hours
            else flops / (hours * HOUR * self.machine.hardware.device.tera["bfloat16"] * peaks.TERA)
        )

    def json(self) -> dict[str, Any]:
        """Return the plan as JSON types."""
        return {
            "suite": self.suite,
            "scale": self.scale,
            "device": self.machine.device,
            "workers": self.cost.workers,
            "threads": self.cost.threads,
            "ranks": self.cost.ranks,
            "expected_seconds": self.seconds,
            "calibrated": self.measured,
            "rates_age_seconds": self.cost.calibration.age,
            "notes": list(self.study.cells.notes),
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
            "elsewhere": None if self.cost.elsewhere is None else self.cost.elsewhere.json(),
            "price": None if self.priced is None else self.priced.json(),
            "rates": [asdict(rates) for rates in self.cost.calibration.rates.values()],
        }


def make_plan(options: StudyOptions, *, to_run: bool, report: Reporter = QUIET, as_new: bool = False) -> Plan:
    """Plan a study: every cell of the suite after all passes, with its state in the store and the cost of what is left.

    Args:
        to_run: whether the plan will be run: problems that would make the run fail are then raised before measuring.
        report: receives messages on progress.
        as_new: whether the plan ignores existing results.

    Raises:
        UserError: unknown names, missing data, a store from a newer version, --hardware for a run on this machine, …
    """
    with rehearsing(options.what.rehearse):
        return _make_plan(options, to_run=to_run, report=report, as_new=as_new)


def _make_plan(options: StudyOptions, *, to_run: bool, report: Reporter, as_new: bool) -> Plan:
    """Return the plan that `make_plan` describes. Each part of it is made from its own groups of options, once they are
    resolved."""
    machine, selection, pricing, where = options.machine, options.selection, options.pricing, options.where
    preflight.check_options(machine, pricing, to_run=to_run)
    suite = suites.load(options.what.suite)
    what, grouped = name_groups(options.what, where)
    scale, model = cost_model.choose(machine, pricing, scale=what.scale, rehearse=what.rehearse, to_run=to_run)
    options = replace(options, what=replace(what, scale=scale))
    what, overrides = options.what, options.overrides
    preflight.check_pricing(pricing, priced=model.hardware is not None or to_run)
    sizes = DataSizes(root=where.data_root, published=scale == "paper" or what.rehearse)
    device = pricing.accelerator or _device_name(model)
    study = expand(
        suite, what, overrides, sizes, only=selection.only, device_name=device, notes=grouped, store=where.store(what)
    )
    preflight.check_warmup(study.chosen)
    preflight.check_places(where, write=to_run)
    if isinstance(what.at, str):
        at, said_at = forecast_at.counted(what.at, study.cells, sizes)
        what = replace(what, at=at)
        options, study = replace(options, what=what), replace(study, notes=(*study.notes, said_at))
    planned = PlannedStudy(suite=suite, what=what, where=where, asked=options.to_toml())
    states, accepted = (
        ({cell: State(CellState.MISSING, 0.0, None) for cell in study.chosen}, ())
        if as_new
        else _states(study.chosen, planned, changed=selection.changed, to_run=to_run)
    )
    left = RemainingWork(
        machine=machine,
        pricing=pricing,
        scale=scale,
        results=where.results,
        cells=study.chosen,
        fractions={cell: state.fraction for cell, state in states.items() if state.name != CellState.DONE},
        sizes=sizes,
        exclusive=suite.exclusive,
        to_run=to_run,
        report=report,
    )
    if left.training and not what.rehearse:
        _check_training(left)
    cost = model.cost(left)
    cells = tuple(_planned(cell, state, cost.cells.get(cell), sizes) for cell, state in states.items())
    undone = [c.cell for c in cells if c.state not in (CellState.DONE, CellState.REFUSED)]
    known = cost.calibration.rates
    said = (
        *study.notes,
        *notes.costly(study, known, sizes),
        *notes.from_outside(study.chosen),
        *notes.short_sighted(study.chosen, known, sizes),
        *notes.absent(suite, what, study.chosen, root=where.data_root),
        *notes.unswept(scale, overrides, undone),
        *notes.part_of_a_run(selection),
        *filter(None, [cost.proposal]),
    )
    plan = Plan(
        study=replace(planned, cells=replace(study, notes=said)),
        cells=cells,
        cost=cost,
        machine=PlannedMachine(
            device=model.device, reason=model.reason, hardware=model.hardware, asked=machine, pricing=pricing
        ),
        selection=selection,
        accepted=accepted,
    )
    warning = "" if model.hardware is not None else resources.too_little_disk(plan.disk, plan.store)
    return _noted_first(plan, warning) if warning else plan


def _noted_first(plan: Plan, note: str) -> Plan:
    """Return the plan with a note above all others."""
    cells = plan.study.cells
    return replace(plan, study=replace(plan.study, cells=replace(cells, notes=(note, *cells.notes))))


def _device_name(model: CostModel) -> str:
    """Return the name of the accelerator on which --hours are counted at scale `gpu`: the one that is planned for, else
    this machine's, else "H100"."""
    row = model.hardware.device if model.hardware is not None else peaks.accelerator_of(model.reason)
    return row.name if row is not None else "H100"


def _states(
    cells: Sequence[Cell], planned: PlannedStudy, *, changed: str, to_run: bool
) -> tuple[dict[Cell, State], tuple[Change, ...]]:
    """Return cell -> its state in the store, and the results of other code or images that are to be taken as they are.

    Args:
        changed: what is done with such results: "keep", "redo" or "refuse"; see the option --changed.

    Raises:
        UserError: the store is from a newer version; a run would silently reuse results of changed code or images.
    """
    study = Study(planned.store)
    study.check()
    directories = [study.cell(cell) for cell in cells]
    states = [state_of(directory) for directory in directories]
    found = changes(cells, directories, states, root=planned.where.data_root)
    if changed == "keep":
        return dict(zip(cells, states, strict=True)), found
    if found and to_run and changed == "refuse":
        raise error_for(found)
    redo = {change.directory for change in found}
    again = State(CellState.CHANGED, 0.0, None)
    return {
        cell: again if directory in redo else state
        for cell, directory, state in zip(cells, directories, states, strict=True)
    }, ()


def _check_training(left: RemainingWork) -> None:
    """Raise UserError if the data of cells that train are missing or too small, or do not fit on the disk."""
    left.report.message("Checking the data …")
    if left.to_run:
        resources.check_room(left.training, left.sizes)
    preflight.check_data(left.training, left.sizes)
    if left.to_run:
        preflight.check_present(left.training, left.sizes)


def _planned(cell: Cell, state: State, cost: RemainingCost | None, sizes: DataSizes) -> PlannedCell:
    """Return a cell with its state and the cost of what is left of it. `cost`: None for a cell that is done."""
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
