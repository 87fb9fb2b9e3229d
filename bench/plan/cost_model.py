"""Cost models: one protocol, and the parts that its implementations in `cost_models/` share."""

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
ACCELERATOR_FLOPS = 1e18  # training FLOPs from which a study is costed on an accelerator too
NOTHING_MEASURED = Calibration()
QUIET = Reporter()


@dataclass(frozen=True, kw_only=True)
class RemainingWork:
    """The work whose cost is to be estimated.

    Attributes:
        machine: options that say how cells are spread.
        pricing: options that say which devices are costed.
        scale: the study's scale, resolved.
        results: folder with records, also of other studies.
        cells: all cells of this run, those that are done included.
        fractions: unfinished cell -> fraction of its training that is done.
        sizes: images and classes of the data sets.
        exclusive: whether one worker has the machine to itself.
        to_run: whether problems that would make a run fail are raised before anything is measured.
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
        """Cells that are not done and train a network."""
        return [cell for cell in self.cells if cell in self.fractions and cell.job == "train"]


@dataclass(frozen=True, kw_only=True)
class RemainingCost:
    """The cost of what is left of one cell.

    Attributes:
        refused: why its model cannot be trained; everything else is then unknown.
        flops: FLOPs of the whole cell, the shared trunk counted once, by convention; None if not counted.
        seconds: seconds of one worker that are left.
        whole: seconds of the whole cell.
        evaluate_share: fraction of the cell's time that goes into evaluating its horizons.
        needs: bytes that it needs; None for a cell that does not train.
        error: one standard deviation of the logarithm of `seconds`, where throughput was not measured here.
        basis: where the throughput comes from.
        device_hours: hours left, summed over all devices that the cell occupies; None where no devices were named.
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
        workers: how many cells run at a time.
        threads: threads of each process.
        ranks: processes that train one cell together.
        cells: cell that is not done -> its cost.
        calibration: the throughputs that costs rest on.
        elsewhere: price of the same work on one accelerator; None where nobody would ask for it.
        proposal: a sentence on cells for each GPU, or GPUs for each cell; "" where there is nothing to propose.
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
        hardware: devices that are planned for, where they are not this machine's.
    """

    @property
    def device(self) -> str: ...
    @property
    def reason(self) -> str: ...
    @property
    def hardware(self) -> Hardware | None: ...

    def cost(self, left: RemainingWork) -> StudyCost:
        """Return the cost of what is left.

        Raises:
            UserError: the cells cannot be trained on these devices.
        """
        ...


def choose(machine: Machine, pricing: Pricing, *, scale: str, rehearse: bool, to_run: bool) -> tuple[str, CostModel]:
    """Return the scale, resolved, and the cost model that the options ask for: that of the devices that --hardware
    names, for a plan or a cluster; of one accelerator, for a study of scale `paper` that is planned on a CPU; else of
    measurements on this machine. A rehearsal is not measured.

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
    """Return the cost of one cell by the throughputs of a calibration.

    Args:
        own: fraction of a processor that each process has.
    """
    if cell.job == "train" and (why := calibration.refused.get(rate_key(cell, sizes[cell.data].classes))) is not None:
        return RemainingCost(refused=why)
    costs = [
        estimate.cell_cost(cell, calibration, sizes, ranks=ranks, fraction=part, device=device, own=own)
        for part in (fraction, 0.0)
    ]
    rates = estimate.rates_of(cell, calibration, sizes) if cell.job == "train" else None
    if needs is not None and rates is not None and ranks > 1:  # each is slower than alone, and waits less
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
    """Return the seconds until the last of `workers` workers has ended, if each cell, the longest first, is given to
    the worker with the least to do."""
    loads = [0.0] * workers
    for each in sorted(seconds, reverse=True):
        loads[loads.index(min(loads))] += each
    return max(loads)
