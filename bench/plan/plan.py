"""A plan: which cells of a study are done, the remaining work, and its expected cost on this machine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from bench.core import environment, registry
from bench.core.device import find_device, free_memory
from bench.core.errors import UserError
from bench.core.formatting import join, plural
from bench.core.registry import directory_name
from bench.core.spec import Cell, to_json
from bench.cost import peaks
from bench.data.load import data_set
from bench.data.source import allow_unreadable
from bench.plan import estimate, feed, halving, hardware, preflight, price, repeats, resources
from bench.plan.changed import Change, accept, changes, refusal
from bench.plan.estimate import Calibration, Reporter, rate_key
from bench.plan.expand import expand
from bench.plan.hardware import Hardware
from bench.plan.options import StudyOptions
from bench.plan.price import Price
from bench.plan.repeats import Repeated
from bench.plan.resources import Disk, Needs
from bench.plan.sizes import DataSizes
from bench.store import grid
from bench.store.planned import PlannedCost, note
from bench.store.study import CellDirectory, State, Study, state_of
from bench.suites import _contract as suites
from bench.suites._contract import Suite
from bench.suites._recipes import DEFAULT_RATE, rate_of
from bench.train.schedule import images_trained

START_SECONDS = 4.0  # a worker's start: interpreter, torch, first data set
SOON = 1.05  # times the shortest wall time, that fewer devices per cell may take
FEW = 2  # missing sets of which each has a note of its own
QUIET = Reporter()
NOTHING_MEASURED = Calibration()


@dataclass(frozen=True, kw_only=True)
class PlannedCell:
    """One cell with its state and remaining cost.

    Attributes:
        name: of its folder. state: see bench.store.study.State; or "changed": it has results of a model whose code has
            changed since; or "refused": its model cannot be trained, as the note says. fraction: of its training done
            already.
        images, flops: of the whole cell, the shared trunk counted once. flops is per convention; None if not counted.
        seconds: what is left, on one worker of this machine. None for a cell that is done. whole: of the whole cell.
        evaluate_share: of the cell's time that goes into evaluating its horizons. needs: None of a cell that is done
            or does not train.
        error: of the logarithm of `seconds`, one standard deviation, where rates were not measured here. basis: where
            the rate comes from. utilisation: of the peak, on devices that are not here. device_hours: what is left, of
            all devices that the cell occupies. epochs: how often it sees each image, up to its longest horizon.
    """

    cell: Cell
    name: str
    state: str
    fraction: float
    images: int
    flops: dict[str, int] | None = None
    seconds: float | None = None
    whole: float | None = None
    evaluate_share: float = 0.0
    needs: Needs | None = None
    note: str | None = None
    error: float = 0.0
    basis: str = ""
    utilisation: float | None = None
    device_hours: float | None = None
    epochs: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The cells of a run, and how they would be run.

    Attributes:
        store: folder of the study. grid: names of all cells of the study, whatever `--only` leaves out of this run.
        device: "cpu", "cuda" or "mps"; device_reason: why it was chosen. ranks: processes that make up a worker.
        accelerator: also to be costed on; None: where the scale is meant for one.
        asked: the study file that asks for it, with the scale resolved.
        hardware: devices that it is made for, where they are not this machine's; per_hour: what an hour of theirs
            costs, see `bench.plan.hardware.price`. elsewhere: what is left, on one accelerator.
        waiting: sweeps whose next round is not known yet. downstream: the sets that were named to judge models on.
        notes: deviations from the suite. accepted: results of models whose code has changed, and which
            are to be taken as they are. retry: the state of cells that are run alone. most: cells of this run.
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
    waiting: int = 0
    downstream: tuple[str, ...] = ()

    @property
    def todo(self) -> tuple[PlannedCell, ...]:
        """What is not done and can be; what has been started first, then the longest: short cells fill the gaps at the
        end."""
        left = (cell for cell in self.cells if cell.state not in ("done", "refused"))
        wanted = (cell for cell in left if self.retry in (None, cell.state))
        return tuple(sorted(wanted, key=lambda cell: (cell.state != "partial", -(cell.seconds or 0.0))))[: self.most]

    @property
    def on_gpu(self) -> bool:
        """Whether workers are meant for an accelerator, here or elsewhere."""
        return self.device == "cuda" or self.accelerator is not None

    def count(self, state: str) -> int:
        """Cells in a state."""
        return sum(cell.state == state for cell in self.cells)

    @property
    def seconds(self) -> float:
        """Expected wall time: the longest-first packing of what is left onto the workers, and their start."""
        return packed([cell.seconds or 0.0 for cell in self.todo], self.workers) + START_SECONDS if self.todo else 0.0

    @property
    def priced(self) -> Price | None:
        """What is left on the hardware that was named."""
        if self.hardware is None:
            return None
        return price.of(self.todo, hardware=self.hardware, ranks=self.ranks, wall=self.seconds, asked=self.per_hour)

    @property
    def disk(self) -> Disk:
        """What is left needs of the disk."""
        return resources.disk([c.needs for c in self.todo if c.needs is not None], running=self.workers)

    @property
    def repeated(self) -> tuple[Repeated, ...]:
        """What sees its images more often than `MAX_EPOCHS`, most often first."""
        return repeats.find(self.todo)

    @property
    def measured(self) -> bool:
        """Whether the time is: what ranks lose to each other is not."""
        return self.ranks == 1 and all(rates.measured for rates in self.calibration.rates.values())

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
                    "utilisation": c.utilisation,
                    "cell": to_json(c.cell),
                }
                for c in self.cells
            ],
            "elsewhere": None if self.elsewhere is None else self.elsewhere.json(),
            "price": None if self.priced is None else self.priced.json(),
            "rates": estimate.rates_json(self.calibration),
        }


def packed(seconds: Iterable[float], workers: int) -> float:
    """The longest load of so many workers, the longest cells first."""
    loads = [0.0] * workers
    for each in sorted(seconds, reverse=True):
        loads[loads.index(min(loads))] += each
    return max(loads)


def make_plan(options: StudyOptions, *, to_run: bool, report: Reporter = QUIET, as_new: bool = False) -> Plan:
    """Expand the suite, run preflight checks, inspect the store, calibrate, and estimate the cost.

    Args:
        to_run: whether the plan will be run: problems that would make the run fail are then raised before measuring.
        as_new: as if nothing of it had been done.

    Raises:
        UserError: unknown names, missing data, a store from a newer version, --hardware of a plan to be run, …
    """
    if options.cores and not options.hardware:
        raise UserError("--cores is of --hardware.", "Name the devices, e.g. --hardware 8xH100 --cores 16.")
    if to_run and (options.hardware or options.price):
        raise UserError(
            "--hardware and --price are for plans: they do not choose what a run trains on.",
            f"To see what it would cost: python -m bench.plan --hardware {options.hardware or '8xH100'} …; "
            "to run it, leave both out, also of the study file.",
        )
    for folder in options.plugins:
        registry.add_plugins(folder)
    if options.max_unreadable is not None:
        allow_unreadable(options.max_unreadable)
    suite = suites.load(options.suite)
    asked_price = hardware.price(options.price) if options.price else None
    options, where = _where(options, to_run=to_run)
    device, target = where.device, where.target
    if asked_price and target is None and not to_run:
        raise UserError("--price needs --hardware.", "Name the devices, e.g. --hardware 8xH100.")
    sizes = DataSizes(root=options.data_root, published=options.scale == "paper")
    row = peaks.accelerator_of(where.reason) if target is None else target.device
    cells = expand(suite, options, sizes, device_name=options.accelerator or (row.name if row else "H100"))
    preflight.check_warmup(cells.chosen)
    study, waiting, at_once = Study(options.results / options.suite), 0, len(cells.chosen)
    if options.halving:
        study.check()
        now = halving.next_round(cells.chosen, study, other_code=options.changed == "keep")
        cells = replace(cells, cells=now.cells, chosen=now.cells, notes=(*cells.notes, now.note))
        waiting, at_once = now.waiting, now.at_once
    preflight.check_places(options, write=to_run)
    if target is None:
        side_by_side = cells.chosen[:at_once]
        workers, threads = preflight.processes(options, side_by_side, device=device, exclusive=suite.exclusive)
    else:
        workers, threads = preflight.workers_on(target.count, options, cells.chosen), 1

    study.check()
    directories = [study.cell(cell) for cell in cells.chosen]
    states = [State("missing", 0.0, None) if as_new else state_of(directory) for directory in directories]
    changed = () if as_new else changes(cells.chosen, directories, states)
    if changed and to_run and options.changed == "refuse":
        raise refusal(changed)
    if options.changed != "keep":
        states = _as_changed(states, directories, changed)

    training = [
        cell for cell, state in zip(cells.chosen, states, strict=True) if state.name != "done" and cell.job == "train"
    ]
    calibration, needs = NOTHING_MEASURED, dict[Cell, Needs]()
    if training:
        report.message("Checking the data …")
        if to_run:
            resources.check_room(training, sizes)
        preflight.check_data(training, sizes)
        if to_run:
            preflight.check_present(training, sizes)
        calibration = _rates(training, sizes, where, options, workers=workers, threads=threads, report=report)
        needs = _needs(training, sizes, where, options, calibration, workers=workers, to_run=to_run)

    def planned_with(ranks: int) -> list[PlannedCell]:
        at_once = environment.cores() / (workers * ranks * threads) if target is None and device == "cpu" else 1.0
        return [
            _planned(
                cell,
                directory.path.name,
                state,
                calibration,
                sizes,
                ranks,
                device,
                needs.get(cell),
                own=min(1.0, at_once),
                priced=target is not None,
            )
            for cell, directory, state in zip(cells.chosen, directories, states, strict=True)
        ]

    ranks, planned = options.ranks, planned_with(options.ranks)
    if target is not None and ranks == 1:
        ranks, planned = _best_ranks(target, {1: planned}, planned_with)
        workers = options.workers or max(1, target.count // ranks)
    elsewhere = None
    if training and target is None and calibration.rates:
        one = Hardware(device=peaks.accelerator(options.accelerator or "H100"))
        elsewhere = _elsewhere(one, planned, calibration, sizes)
    unswept = _unswept(options, [p.cell for p in planned if p.state not in ("done", "refused")])
    part = _part(options)
    made = Plan(
        suite=suite.name,
        question=suite.question,
        scale=options.scale,
        store=study.path,
        cells=tuple(planned),
        device=device,
        workers=workers,
        threads=threads,
        ranks=ranks,
        data_root=options.data_root,
        hardware=target,
        per_hour=asked_price,
        elsewhere=elsewhere,
        waiting=waiting,
        downstream=_named_downstream(options, cells.cells),
        device_reason=where.reason,
        accelerator=options.accelerator,
        calibration=calibration,
        grid=tuple(map(directory_name, cells.cells)),
        asked=options.to_toml(),
        notes=(*cells.notes, *_absent(suite, options, cells.chosen), *unswept, *part),
        accepted=changed if options.changed == "keep" else (),
        retry=options.retry,
        most=options.max_cells,
    )
    warning = resources.too_little_disk(made.disk, study.path) if target is None else ""
    return replace(made, notes=(warning, *made.notes)) if warning else made


@dataclass(frozen=True, kw_only=True)
class Where:
    """What a plan is for. target: named devices; None for those of this machine. measured: whether rates are measured
    here, of devices like those that are planned for. reason: how the device was found."""

    device: str
    reason: str
    target: Hardware | None = None
    measured: bool = True


def _where(options: StudyOptions, *, to_run: bool) -> tuple[StudyOptions, Where]:
    """The options with their scale settled, and what is planned for."""
    device, reason = find_device(options.device)
    where = Where(device=device, reason=reason)
    if options.hardware and not to_run:
        target, present = hardware.parse(options.hardware, cores=options.cores), peaks.accelerator_of(reason)
        here = present is not None and present.name == target.device.name
        said = f"{target}, {'as the one here' if here else 'not here'}"
        where = Where(device="cuda", reason=said, target=target, measured=here)
    options = replace(options, scale=preflight.resolve_scale(options.scale, where.device))
    if options.scale == "paper" and where.device == "cpu" and not to_run:  # nobody trains that on a CPU
        target = Hardware(device=peaks.accelerator(options.accelerator or "H100"))
        said = f"one {target}, assumed: name yours with --hardware"
        where = Where(device="cuda", reason=said, target=target, measured=False)
    return options, where


def _rates(
    training: Sequence[Cell],
    sizes: DataSizes,
    where: Where,
    options: StudyOptions,
    *,
    workers: int,
    threads: int,
    report: Reporter,
) -> Calibration:
    """Rates of the cells that train: measured, or of named devices that are not here."""
    busy = workers * options.ranks if where.target is None else 1 if where.measured else environment.cores()
    measured = estimate.calibrate(
        training,
        sizes,
        device=where.device if where.measured else "cpu",
        threads=threads,
        processes=busy,
        anew=options.calibrate,
        report=report,
        measure=where.measured,
    )
    if where.target is None or where.measured:
        return measured
    found_there = hardware.recorded(options.results, where.target.device)
    return hardware.rates_on(where.target, measured, training, sizes, found_there)


def _needs(
    training: Sequence[Cell],
    sizes: DataSizes,
    where: Where,
    options: StudyOptions,
    calibration: Calibration,
    *,
    workers: int,
    to_run: bool,
) -> dict[Cell, Needs]:
    """Bytes of every cell whose rates are known."""
    known = ((cell, estimate.rates_of(cell, calibration, sizes)) for cell in training)
    rated = [(cell, found) for cell, found in known if found is not None]
    if to_run:
        resources.check_memory(rated, device=where.device, ranks=options.ranks)
    trained = [(cell, found) for cell, found in rated if cell.horizons != (0,)]
    decoded = feed.per_core([cell for cell, _ in trained], sizes)
    if where.target is None:
        memory, cores = free_memory(where.device), environment.cores() / (workers * options.ranks)
        return {
            cell: resources.needs(
                cell,
                found,
                sizes,
                device=where.device,
                memory=memory,
                decoded_per_second=cores * decoded.get(cell, 0.0),
                ranks=options.ranks,
            )
            for cell, found in trained
        }
    there = where.target.device
    return {
        cell: resources.needs(
            cell,
            found,
            sizes,
            device=where.device,
            memory=round(there.gigabytes * 1e9),
            decoded_per_second=where.target.cores_each * decoded.get(cell, 0.0),
            ranks=options.ranks,
            micro=hardware.micro_batch(cell, found, there, ranks=options.ranks),
        )
        for cell, found in trained
    }


def _elsewhere(one: Hardware, planned: Sequence[PlannedCell], calibration: Calibration, sizes: DataSizes) -> Price:
    """What is left of the cells that train, on one device of another kind."""
    left = [p for p in planned if p.state not in ("done", "refused") and p.cell.job == "train"]
    decoded = feed.per_core([p.cell for p in left], sizes)
    there = hardware.rates_on(one, calibration, [p.cell for p in left], sizes, hardware.Recorded())
    moved = []
    for each in left:
        cost = estimate.cell_cost(each.cell, there, sizes, ranks=1, fraction=each.fraction, device="cuda")
        rates = there.rates[rate_key(each.cell, sizes[each.cell.data].classes)]
        decoding = one.cores_each * decoded.get(each.cell, 0.0)
        seconds = cost.fed(feed.waiting(rates.train_images_per_second, decoding, device="cuda"))
        moved.append(replace(each, device_hours=seconds / price.HOUR, error=rates.error, basis=rates.basis))
    wall = sum(p.device_hours or 0.0 for p in moved) * price.HOUR
    return price.of(moved, hardware=one, ranks=1, wall=wall, asked=None)


def _best_ranks(
    target: Hardware, made: dict[int, list[PlannedCell]], planned_with: Callable[[int], list[PlannedCell]]
) -> tuple[int, list[PlannedCell]]:
    """How many devices train each cell together so that all is done soonest; fewer where it makes little difference."""
    walls: dict[int, float] = {}
    for ranks in (2**k for k in range(target.count.bit_length())):
        made[ranks] = made.get(ranks) or planned_with(ranks)
        left = [cell.seconds or 0.0 for cell in made[ranks] if cell.state not in ("done", "refused")]
        walls[ranks] = packed(left, target.count // ranks)
    best = next(ranks for ranks, wall in walls.items() if wall <= SOON * min(walls.values()))
    return best, made[best]


def _as_changed(
    states: Sequence[State], directories: Sequence[CellDirectory], changed: Sequence[Change]
) -> list[State]:
    redo = {change.directory for change in changed}
    return [State("changed", 0.0, None) if at in redo else state for at, state in zip(directories, states, strict=True)]


def _planned(
    cell: Cell,
    name: str,
    state: State,
    calibration: Calibration,
    sizes: DataSizes,
    ranks: int,
    device: str,
    needs: Needs | None,
    *,
    own: float,
    priced: bool,
) -> PlannedCell:
    planned = PlannedCell(
        cell=cell,
        name=name,
        state=state.name,
        fraction=state.fraction,
        note=state.note,
        images=images_trained(cell.recipe, cell.horizons),
    )
    if state.name == "done":
        return planned
    if cell.job == "train" and (why := calibration.refused.get(rate_key(cell, sizes[cell.data].classes))) is not None:
        return replace(planned, state="refused", note=f"cannot be run: {why}")
    costs = [
        estimate.cell_cost(cell, calibration, sizes, ranks=ranks, fraction=fraction, device=device, own=own)
        for fraction in (state.fraction, 0.0)
    ]
    rates = estimate.rates_of(cell, calibration, sizes) if cell.job == "train" else None
    if needs is not None and rates is not None and ranks > 1:  # each is slower than alone, and waits less
        slower = estimate.gain(cell, rates, ranks=ranks, device=device) / ranks
        wait = feed.waiting(slower * rates.train_images_per_second, needs.decoded, device=device)
        needs = replace(needs, wait=wait)
    cost, (seconds, whole) = costs[0], (each.fed(needs.wait if needs else 0.0) for each in costs)
    return replace(
        planned,
        flops=cost.flops,
        seconds=seconds,
        whole=whole,
        evaluate_share=cost.evaluate_share,
        needs=needs,
        device_hours=seconds * ranks / price.HOUR if priced else None,
        error=rates.error if rates else 0.0,
        basis=rates.basis if rates else "",
        utilisation=rates.utilisation if rates else None,
        epochs=cell.horizons[-1] / (cell.num_images or sizes[cell.data].train) if cell.horizons[-1] else 0.0,
    )


def _part(options: StudyOptions) -> list[str]:
    """A note on what this run leaves for others."""
    failed = " that failed" if options.retry else ""
    if options.max_cells is not None:
        return [f"This run does at most {plural(options.max_cells, 'cell')}{failed}."]
    return [f"This run does only cells{failed}."] if options.retry else []


def _unswept(options: StudyOptions, cells: Sequence[Cell]) -> list[str]:
    """A note on models that train at a learning rate which nobody chose for them."""
    if options.scale == "paper" or options.overrides.recipe or options.overrides.changes("lr"):
        return []
    rates: dict[str, set[float]] = {}
    for cell in cells:
        if cell.job == "train" and cell.horizons != (0,) and rate_of(cell.model, scale=options.scale) is None:
            rates.setdefault(cell.model, set()).add(cell.recipe.lr)
    models = [model for model, found in rates.items() if found == {DEFAULT_RATE}]
    if not models:
        return []
    return [
        f"Learning rate not swept, {DEFAULT_RATE:g} assumed: {join(models)}. To choose it: python -m bench.run "
        f"--suite rates --scale {options.scale} --models {','.join(models)}; to set it: --set lr=…"
    ]


def _absent(suite: Suite, options: StudyOptions, cells: Sequence[Cell]) -> list[str]:
    """Notes on missing downstream sets: tasks left out, or at scale `paper` included in the estimate."""
    judged = {task.data for cell in cells for task in cell.tasks}
    notes = []
    if options.scale == "paper":
        for name in sorted(judged):
            one = data_set(name)
            if not one.available(options.data_root):
                notes.append(f"Included in the estimate, but not on this machine: {name}. {one.how_to_get}")
    elif judged and options.downstream is None:
        gone = {
            name: data_set(name).how_to_get for name in suite.downstream.get(options.scale, ()) if name not in judged
        }
        notes += [f"Not evaluated on {name}, which is not on this machine. {how}" for name, how in gone.items()]
        if len(gone) > FEW:
            what = f"Not evaluated on {join(list(gone))}, which are not on this machine."
            notes = [f"{what} python -m bench.data NAME says how to get one."]
    return notes


def _named_downstream(options: StudyOptions, cells: Sequence[Cell]) -> tuple[str, ...]:
    """The sets that models are judged on, as tasks name them, where the user named them."""
    return tuple(dict.fromkeys(task.data for cell in cells for task in cell.tasks)) if options.downstream else ()


def begin(plan: Plan) -> None:
    """Prepare the store for a run: write the names of the whole grid, so that a report can list missing cells, and the
    study file that asks for it, and what its cells are planned at; complete the cleanup of finished cells after a kill.

    Raises:
        UserError: the store cannot be written.
    """
    study = Study(plan.store)
    study.create()
    refused = {cell.name: str(cell.note) for cell in plan.cells if cell.state == "refused"}
    if unseen := set(plan.grid).difference(cell.name for cell in plan.cells):  # left out by --only
        before = grid.read(plan.store)
        refused |= {name: why for name, why in (before.refused if before else {}).items() if name in unseen}
    wanted = grid.WantedCells(
        suite=plan.suite, scale=plan.scale, names=plan.grid, refused=refused, downstream=plan.downstream
    )
    grid.write(plan.store, wanted)
    grid.write_study_file(plan.store, plan.asked)
    accept(plan.accepted)
    on = PlannedCost(seconds=0.0, device=plan.device, threads=plan.threads, ranks=plan.ranks)
    note(
        plan.store,
        [
            (cell.name, cell.state, replace(on, seconds=cell.whole, error=cell.error))
            for cell in plan.todo
            if cell.whole is not None
        ],
    )
    for planned in plan.cells:
        if planned.state == "done":
            study.cell(planned.cell).tidy()
