"""The interface to the processes (ranks) that train one cell together, and its single-process implementation.

`bench.train.distributed.DistributedRanks` is several. Every rank makes the same calls in the same order. Rank 0 decides
and writes; what is trained does not depend on how many there are. Does not import torch.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any, NoReturn, TypeVar

from bench.core.errors import UserError
from bench.study.cell import Cell

T = TypeVar("T")

SHARED_JOBS = ("train",)  # the others time something, or do not train
EXIT_RETRY = 75  # of a worker that has to start again, its device being lost; sysexits.h: a temporary failure


def here() -> int:
    """Ranks of this cell on this machine."""
    return int(os.environ.get("LOCAL_WORLD_SIZE", "1"))


class SharedError(UserError):
    """A failure that every rank knows of: all of them raise it, and can go on with the next cell."""


class RankOutOfMemory(UserError):
    """Memory ran out on this rank while the others wait for it.

    Args:
        images: that passed through the network at once.
    """

    def __init__(self, images: int) -> None:
        smaller = f"Set a smaller micro-batch (--set micro_batch={images // 2}), or use more ranks."
        super().__init__(
            f"ran out of memory with {images} images at a time.",
            smaller if images > 1 else "Use a smaller model, or spread it over ranks (--set sharding=fsdp).",
        )


class RankFailure(Exception):
    """The ranks can no longer reach each other: all of them end.

    Args:
        message: which rank, and why, as far as this rank knows.
        is_reporter: whether this rank is the one that prints it.
        fix: what to do.
    """

    def __init__(self, message: str, *, is_reporter: bool, fix: str = "") -> None:
        super().__init__(message)
        self.is_reporter = is_reporter
        self.fix = fix or "Run the same command to continue, with any number of ranks; nothing saved is lost."


class Ranks:
    """One process, and the interface of several. `rank` counts from 0 to `size` - 1."""

    rank = 0
    size = 1

    @property
    def is_rank0(self) -> bool:
        """Whether this rank decides and writes."""
        return self.rank == 0

    @property
    def is_first_here(self) -> bool:
        """Whether this is the first rank of its machine."""
        return True

    def share(self, batch: int) -> slice:
        """This rank's part of a global batch: the parts are equal, contiguous and in the order of the ranks."""
        each = batch // self.size
        return slice(self.rank * each, (self.rank + 1) * each)

    # -- decisions -------------------------------------------------------------------------------------------------

    def run_on_rank0(self, work: Callable[[], T]) -> T:
        """Rank 0 does `work`; the others wait, and return what it returned or raise what it raised."""
        return work()

    def run_on_all(self, work: Callable[[], T]) -> T:
        """Every rank does `work`, which must not call another rank. Where it fails on one, all raise SharedError; where
        it is interrupted on one, all raise Interrupted."""
        return work()

    def exchange(self, value: T) -> list[T]:
        """The values of every rank, in the order of the ranks."""
        return [value]

    def agree(self, *, stop: bool, save: bool) -> tuple[bool, bool]:
        """(whether any rank wants to stop, whether rank 0 wants to save), the same on every rank."""
        return stop, save

    # -- training --------------------------------------------------------------------------------------------------

    def check_model(self, model: Any) -> None:
        """Raise SharedError for a model whose results would depend on the number of ranks."""

    def shard_model(self, model: Any, *, sharding: str, dtype: str) -> Any:
        """A copy of the model that is sharded over the ranks, or the model itself where each rank holds all of it."""
        return model

    def is_sharded(self, model: Any) -> bool:
        """Whether a model is sharded over the ranks; it then casts its weights by itself."""
        return False

    def data_parallel(self, network: Any) -> Any:
        """The module that computes as a network that every rank holds whole, and averages its gradients over the
        ranks."""
        return network

    def set_gradient_sync(self, network: Any, *, last: bool) -> None:
        """Before each micro-batch: gradients are exchanged after the last one only."""

    def mean(self, value: T) -> T:
        """A tensor's mean over the ranks, without waiting for the device."""
        return value

    # -- state -----------------------------------------------------------------------------------------------------

    def gather(self, tensors: dict[str, Any], *, everywhere: bool = False) -> dict[str, Any]:
        """Whole tensors from sharded ones, on rank 0 or on all; the others get those that are not sharded only."""
        return tensors

    def shard(self, value: T, *, like: Any) -> T:
        """This rank's shard of a whole tensor, cut as `like` is; the tensor itself where `like` is not sharded."""
        return value

    # -- the end ---------------------------------------------------------------------------------------------------

    def failure(self, error: Exception) -> RankFailure:
        """How an error that the other ranks do not know of is reported."""
        return RankFailure(str(error), is_reporter=True)

    def close(self) -> None:
        """Barrier, then destroy the process group."""

    def hard_exit(self, code: int) -> NoReturn:
        """End this process at once."""
        raise SystemExit(code)


ONE_RANK = Ranks()


def check_cells(cells: Iterable[Cell], *, ranks: int) -> None:
    """Refuse cells that these ranks cannot share, before anything starts.

    Raises:
        UserError: a global batch that they do not divide, with numbers that do; a job for one process.
    """
    for cell in cells:
        batch = cell.recipe.batch
        if cell.job not in SHARED_JOBS:
            raise UserError(f"{cell.model}: the {cell.job} job runs in a single process.", "Leave --ranks out.")
        if cell.horizons != (0,) and batch % ranks:
            fitting = ", ".join(str(n) for n in range(1, min(batch, 64) + 1) if batch % n == 0)
            raise UserError(
                f"{cell.model}: a batch of {batch} images cannot be shared equally by {ranks} ranks.",
                f"Numbers of ranks that divide it: {fitting}.",
            )
