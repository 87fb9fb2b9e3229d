"""The interface to the processes (ranks) that train one cell (training run) together, and its single-process
implementation.

`bench.train.distributed.DistributedRanks` implements it for several processes. Every rank makes the same calls in the
same order. Rank 0 decides and writes; what is trained does not depend on the number of ranks. Does not import torch.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any, NoReturn, TypeVar

from bench.core.errors import UserError
from bench.study.cell import Cell

T = TypeVar("T")

SHARED_JOBS = ("train",)  # jobs that several ranks can do; the others time something, or do not train
EXIT_RETRY = 75  # exit status of a worker that must start again because it lost its device (EX_TEMPFAIL in sysexits.h)


def here() -> int:
    """Return how many of the ranks (processes) that train the present cell (training run) are on this machine."""
    return int(os.environ.get("LOCAL_WORLD_SIZE", "1"))


class SharedError(UserError):
    """A failure that every rank (process) knows of: all ranks raise it, and can go on with the next cell (training
    run)."""


class RankOutOfMemory(UserError):
    """Raised when memory runs out on this rank (process) while the other ranks wait for it.

    Args:
        images: number of images that passed through the network at once.
    """

    def __init__(self, images: int) -> None:
        smaller = f"Set a smaller micro-batch (--set micro_batch={images // 2}), or use more ranks."
        super().__init__(
            f"ran out of memory with {images} images at a time.",
            smaller if images > 1 else "Use a smaller model, or spread it over ranks (--set sharding=fsdp).",
        )


class RankFailure(Exception):
    """Raised when the ranks (processes that train together) can no longer reach each other; all of them then stop.

    Args:
        message: which rank failed, and why, as far as this rank knows.
        is_reporter: whether this rank is the one that prints the message.
        fix: what the user can do; "" for the advice to run the same command again.
    """

    def __init__(self, message: str, *, is_reporter: bool, fix: str = "") -> None:
        super().__init__(message)
        self.is_reporter = is_reporter
        self.fix = fix or "Run the same command to continue, with any number of ranks; nothing saved is lost."


class Ranks:
    """A single process that trains alone, and the interface of one of several processes (ranks) that train together.

    Attributes:
        rank: number of this process, from 0 to `size` - 1.
        size: number of processes.
    """

    rank = 0
    size = 1

    @property
    def is_rank0(self) -> bool:
        """Whether this is rank 0, which decides and writes."""
        return self.rank == 0

    @property
    def is_first_here(self) -> bool:
        """Whether this is the first of the ranks (processes that train together) on its machine."""
        return True

    def share(self, batch: int) -> slice:
        """Return the places in a global batch of `batch` images that this rank computes. The parts of the ranks are
        equal, contiguous and in the order of ranks."""
        each = batch // self.size
        return slice(self.rank * each, (self.rank + 1) * each)

    # -- decisions -------------------------------------------------------------------------------------------------

    def run_on_rank0(self, work: Callable[[], T]) -> T:
        """Let rank 0 call `work`. All ranks return what it returned, or raise its failure; the others wait
        meanwhile."""
        return work()

    def run_on_all(self, work: Callable[[], T]) -> T:
        """Let every rank call `work`, which must not communicate with other ranks, and return its result on this rank.
        If it fails on one rank, all raise SharedError; if it is interrupted on one, all raise Interrupted."""
        return work()

    def exchange(self, value: T) -> list[T]:
        """Return the values that the ranks passed, one per rank, in the order of ranks."""
        return [value]

    def agree(self, *, stop: bool, save: bool) -> tuple[bool, bool]:
        """Return (whether any rank wants to stop, whether rank 0 wants to save a checkpoint), the same on every rank.

        Args:
            stop, save: what this rank wants.
        """
        return stop, save

    # -- training --------------------------------------------------------------------------------------------------

    def check_model(self, model: Any) -> None:
        """Raise SharedError for a model whose results would depend on the number of ranks (processes that train
        together), as with batch normalisation."""

    def shard_model(self, model: Any, *, sharding: str, dtype: str) -> Any:
        """Return a copy of the model whose weights are distributed over the ranks; or the model itself if each rank
        holds all weights.

        Args:
            sharding: the recipe's `sharding`: "fsdp" distributes the weights, "replicate" does not.
            dtype: precision of training, "float32" or "bfloat16".
        """
        return model

    def is_sharded(self, model: Any) -> bool:
        """Return whether a model's weights are distributed over the ranks; such a model casts its weights by itself."""
        return False

    def data_parallel(self, network: Any) -> Any:
        """Wrap a network that every rank holds as a whole. The returned module computes the same, and averages the
        gradients over the ranks."""
        return network

    def set_gradient_sync(self, network: Any, *, last: bool) -> None:
        """Tell a network, before each micro-batch, whether it is the last of its step: ranks exchange gradients after
        the last one only."""

    def mean(self, value: T) -> T:
        """Return a tensor's mean over the ranks, without waiting for the device."""
        return value

    # -- state -----------------------------------------------------------------------------------------------------

    def gather(self, tensors: dict[str, Any], *, everywhere: bool = False) -> dict[str, Any]:
        """Assemble sharded tensors into whole ones, on rank 0 only or (`everywhere`) on all ranks; other ranks get only
        the tensors that are not sharded.

        Args:
            tensors: name -> tensor. The result has the same names.
        """
        return tensors

    def shard(self, value: T, *, like: Any) -> T:
        """Return this rank's shard of a whole tensor, distributed as the tensor `like` is; the whole tensor if `like`
        is not sharded."""
        return value

    # -- the end ---------------------------------------------------------------------------------------------------

    def failure(self, error: Exception) -> RankFailure:
        """Return the RankFailure to raise for an error that the other ranks do not know of."""
        return RankFailure(str(error), is_reporter=True)

    def close(self) -> None:
        """Wait for all ranks, then destroy the process group."""

    def hard_exit(self, code: int) -> NoReturn:
        """End this process at once, with exit status `code`."""
        raise SystemExit(code)


ONE_RANK = Ranks()


def check_cells(cells: Iterable[Cell], *, ranks: int) -> None:
    """Refuse cells (training runs) that this number of ranks (processes) cannot train together, before anything starts.

    Raises:
        UserError: a global batch is not divisible by the number of ranks (the error lists numbers that divide it), or a
            job runs in a single process only.
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
