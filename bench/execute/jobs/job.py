"""Jobs (what a worker does with a cell), their context, and the facts on model and data that every job records."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.core.events import Advanced
from bench.data.image_set import ImageSet
from bench.store.study import CellDirectory
from bench.study import fingerprint, registry
from bench.study.cell import Cell
from bench.study.record import DataFacts, Execution, ModelFacts, Operations, Result
from bench.train.ranks import ONE_RANK, Ranks

if TYPE_CHECKING:
    from bench.cost.flops import ModelCost


@dataclass(frozen=True, kw_only=True)
class JobContext:
    """The surroundings of a job, and functions that it calls.

    Attributes:
        directory: the cell's folder.
        attempt: folder of this attempt inside it (metrics.jsonl, log.txt).
        device: "cpu", "cuda" or "mps".
        threads: CPU threads that this process may use.
        progress: called now and then, for the display.
        should_stop: returns True once a signal has asked for a stop; the job then saves and raises
            `bench.core.errors.Interrupted`.
        log: writes one line to the attempt's log.
        data_root: folder of the user's own data sets; None: there is none.
        profile: whether to write a torch.profiler trace of a few steps into the attempt's folder.
        check_lease: called before a checkpoint or weights are written; raises `bench.store.lease.LeaseLost` if another
            worker has taken the cell over.
        ranks: the processes that run this cell together. Only rank 0 may write; `progress` and `log` of the others do
            nothing.
    """

    directory: CellDirectory
    attempt: Path
    device: str
    threads: int
    progress: Callable[[Advanced], None]
    should_stop: Callable[[], bool]
    log: Callable[[str], None]
    data_root: Path | None = None
    profile: bool = False
    check_lease: Callable[[], None] = lambda: None
    ranks: Ranks = ONE_RANK

    @property
    def on_cpu(self) -> bool:
        return self.device == "cpu"

    @property
    def devices(self) -> int:
        """Number of devices that core-days count: CPU threads, or accelerators, of all ranks."""
        return self.ranks.size * (self.threads if self.on_cpu else 1)


@dataclass(frozen=True, kw_only=True)
class Job:
    """What a worker does with a cell. A file in this folder exports one job as `JOB`.

    Attributes:
        run: (cell, context) -> the result. The worker adds identity, environment and attempts to it, and writes the
            record.
        revision: incremented when a change gives other results. It is part of a result's identity, except for the job
            `train`, whose revision is `bench.study.cell.RECIPE_REVISION`.
        expected_seconds: (cell, device=…) -> seconds that the cell takes, for plans; None: plans measure it.
    """

    run: Callable[[Cell, JobContext], Result]
    revision: int = 1
    expected_seconds: Callable[..., float] | None = None


def model_facts(name: str, cost: ModelCost) -> ModelFacts:
    """Return the record's `model`: facts about a model, with its parameters, MACs and FLOPs."""
    code = fingerprint.of_model(name)
    return ModelFacts(
        name=name,
        family=registry.family_label(name),
        params=cost.params,
        params_body=cost.params_body,
        num_features=cost.num_features,
        forward_macs=Operations(**cost.forward_macs),
        train_flops_per_image=Operations(**cost.train_flops_per_image),
        fingerprint=None if code is None else code.digest,
    )


def data_facts(cell: Cell, train: ImageSet, val: ImageSet | None = None) -> DataFacts:
    """Return the record's `data`: facts about the training set and about the upstream test set `val` (None: not
    used)."""
    return DataFacts(
        name=cell.data,
        kind=train.kind,
        revision=registry.load("data set", cell.data).revision,
        num_images=len(train),
        num_classes=train.num_classes,
        content_hash=train.content_hash,
        image_size=cell.image_size,
        channels=cell.channels,
        num_val=None if val is None else len(val),
    )


def execution(context: JobContext, *, dtype: str | None, **more: Any) -> Execution:
    """Return the record's `execution`: device, ranks, threads, precision. `more`: fields that only some jobs know."""
    return Execution(
        device=context.device,
        accelerators=0 if context.on_cpu else context.ranks.size,
        ranks=context.ranks.size,
        threads=context.threads,
        dtype=dtype,
        **more,
    )
