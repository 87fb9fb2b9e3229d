"""The interface of cost models, which estimate what a study costs, and the parts that its implementations in
`cost_models/` share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from bench.core.device import find_device
from bench.plan import estimate, preflight
from bench.plan.estimate import Calibration, Reporter, rate_key
from bench.plan.resources import Needs
from bench.plan.sizes import DataSizes
from bench.study import registry
from bench.study.cell import Cell
from bench.study.options import Machine, Pricing

if TYPE_CHECKING:
    from bench.cost.hardware import Hardware
    from bench.plan.price import Price

HOUR = 3600.0  # seconds
ACCELERATOR_FLOPS = 1e18  # training FLOPs from which a study's cost on an accelerator is stated too
NOTHING_MEASURED = Calibration()
QUIET = Reporter()


@dataclass(frozen=True, kw_only=True)
class RemainingWork:
    """The work whose cost is to be estimated: the unfinished cells of a study, and the options that matter for their
    cost.

    Attributes:
        machine: options that say how cells are spread over devices.
        pricing: options that say for which devices costs are estimated.
        scale: "cpu", "gpu" or "paper".
        results: folder with the records of this study and of others.
        cells: all cells of this run, finished ones included.
        fractions: unfinished cell -> fraction of its training that is done.
        sizes: numbers of images and classes of the data sets.
        exclusive: whether one worker must have the machine to itself.
        to_run: whether the study will be run, so that problems that would make it fail are raised before anything is
            measured.
        report: receives messages on progress.
    """

    machine: Machine
    pricing: Pricing
    scale: str
    results: Path
    cells: Sequence[Cell]
    fractions: Mapping[Cell, float]
    sizes: DataSizes
    exclusive: bool = False
    to_run: bool = False
    report: Reporter = QUIET

    @property
    def training(self) -> list[Cell]:
        """The unfinished cells whose job is to train a network."""
        return [cell for cell in self.cells if cell in self.fractions and cell.job == "train"]


@dataclass(frozen=True, kw_only=True)
class RemainingCost:
    """The cost of what is left of one cell.

    Attributes:
        refused: why its model cannot be trained, in words; everything else is then unknown. None: it can.
        flops: convention of counting ("dense" or "paper") -> FLOPs of the whole cell, with the trunk (the part of the
            training that its budgets share) counted once; None: not counted.
        seconds: seconds of one worker that are left; None: unknown.
        whole: seconds of the whole cell; None: unknown.
        evaluate_share: fraction of the cell's time that goes into evaluating its horizons.
        needs: the memory and disk that it needs; None for a cell that does not train.
        error: one standard deviation of the logarithm of `seconds`; 0 where throughput was measured here.
        basis: where the throughput comes from, in words.
        device_hours: hours left, summed over all devices that the cell occupies; None if no devices were named.
    """

    refused: str | None = None
    flops: dict[str, int] | None = None
    seconds: float | None = None
    whole: float | None = None
    evaluate_share: float = 0.0
    needs: Needs | None = None
    error: float = 0.0
    basis: str = ""
    device_hours: float | None = None


@dataclass(frozen=True, kw_only=True)
class StudyCost:
    """The cost of what is left of a study, and how the work is spread.

    Attributes:
        workers: number of cells that run at the same time.
        threads: threads of each process.
        ranks: processes that train one cell together.
        cells: unfinished cell -> its cost.
        calibration: the throughputs from which the costs follow.
        elsewhere: price of the same work on one accelerator; None if there is no reason to state it.
        proposal: a sentence that proposes another number of devices for each cell; "" if there is nothing to propose.
    """

    workers: int
    threads: int
    ranks: int
    cells: Mapping[Cell, RemainingCost] = field(default_factory=dict)
    calibration: Calibration = NOTHING_MEASURED
    elsewhere: Price | None = None
    proposal: str = ""


class CostModel(Protocol):
    """The interface of cost models, which estimate what a study costs.

    Attributes:
        device: "cpu", "cuda" or "mps".
        reason: how the device was chosen, in words.
        hardware: the devices that are planned for; None if they are this machine's.
    """

    @property
    def device(self) -> str: ...
    @property
    def reason(self) -> str: ...
    @property
    def hardware(self) -> Hardware | None: ...

    def cost(self, left: RemainingWork) -> StudyCost:
        """Return the cost of the work that is left, and how it is spread over workers.

        Raises:
            UserError: the cells cannot be trained on these devices.
        """
        ...


def choose(machine: Machine, pricing: Pricing, *, scale: str, rehearse: bool, to_run: bool) -> tuple[str, CostModel]:
    """Return the scale of the study, with "auto" resolved, and the cost model that the options ask for.

    A rehearsal (a trial run in seconds) is not measured. Otherwise the model is that of the devices that --hardware
    names, for a plan or a run on a cluster; that of one accelerator, for a study of scale `paper` that is only planned,
    on a CPU; else it measures this machine.

    Args:
        scale: "auto", "cpu", "gpu" or "paper".
        rehearse: whether the study is a rehearsal.
        to_run: whether the study will be run, not only planned.

    Raises:
        UserError: an unknown scale, device or hardware.
    """
    device, reason = find_device(machine.device)
    named = bool(pricing.hardware) and not (to_run and machine.executor == "local")
    scale = preflight.resolve_scale(scale, "cuda" if named else device)
    assumed = scale == "paper" and device == "cpu" and not named and not to_run
    name = "unmeasured" if rehearse else "named-hardware" if named or assumed else "this-machine"
    model: CostModel = registry.load("cost model", name)(machine, pricing, device=device, reason=reason)
    return scale, model


def remaining_cost(
    cell: Cell,
    calibration: Calibration,
    sizes: DataSizes,
    *,
    device: str,
    ranks: int,
    fraction: float,
    needs: Needs | None,
    own: float = 1.0,
) -> RemainingCost:
    """Return the cost of what is left of one cell, from the throughputs of a calibration.

    Args:
        ranks: processes that train the cell together.
        fraction: fraction of its training that is done.
        needs: the memory and disk that it needs, and how long it waits for images; None: it does not wait.
        own: fraction of a processor that each process has.
    """
    if cell.job == "train" and (why := calibration.refused.get(rate_key(cell, sizes[cell.data].classes))) is not None:
        return RemainingCost(refused=why)
    costs = [
        estimate.cell_cost(cell, calibration, sizes, ranks=ranks, fraction=part, device=device, own=own)
        for part in (fraction, 0.0)
    ]
    rates = estimate.rates_of(cell, calibration, sizes) if cell.job == "train" else None
    if needs is not None and rates is not None and ranks > 1:  # each rank is slower than alone, and so waits less
        slower = estimate.gain(cell, rates, ranks=ranks, device=device) / ranks
        wait = estimate.waiting(slower * rates.train_images_per_second, needs.decoded, device=device)
        needs = replace(needs, wait=wait)
    seconds, whole = (each.fed(needs.wait if needs else 0.0) for each in costs)
    return RemainingCost(
        flops=costs[0].flops,
        seconds=seconds,
        whole=whole,
        evaluate_share=costs[0].evaluate_share,
        needs=needs,
        error=rates.error if rates else 0.0,
        basis=rates.basis if rates else "",
    )


def packed(seconds: Sequence[float], workers: int) -> float:
    """Return the seconds until `workers` workers have done cells that take `seconds` each. The longest cell is given
    away first, and each cell to the worker with the least to do."""
    loads = [0.0] * workers
    for each in sorted(seconds, reverse=True):
        loads[loads.index(min(loads))] += each
    return max(loads)
