"""The interface to the processes (ranks) that train one cell together, and its single-process implementation.

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
    """Return the number of ranks on this machine that train this cell."""
    return int(os.environ.get("LOCAL_WORLD_SIZE", "1"))


class SharedError(UserError):
    """A failure that every rank knows of: all ranks raise it, and can go on with the next cell."""


class RankOutOfMemory(UserError):
    """Raised when memory runs out on this rank while the others wait for it.

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
    """Raised when the ranks can no longer reach each other: all of them end.

    Args:
        message: which rank failed, and why, as far as this rank knows.
        is_reporter: whether this rank is the one that prints the message.
        fix: what the user can do.
    """

    def __init__(self, message: str, *, is_reporter: bool, fix: str = "") -> None:
        super().__init__(message)
        self.is_reporter = is_reporter
        self.fix = fix or "Run the same command to continue, with any number of ranks; nothing saved is lost."


class Ranks:
    """A single process that trains alone, and the interface for several. `rank` is from 0 to `size` - 1."""

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
        """Return this rank's part of a global batch of this size. Parts are equal, contiguous and in the order of
        ranks."""
        each = batch // self.size
        return slice(self.rank * each, (self.rank + 1) * each)

    # -- decisions -------------------------------------------------------------------------------------------------

    def run_on_rank0(self, work: Callable[[], T]) -> T:
        """Let rank 0 do `work`. The other ranks wait, and return what it returned or raise its failure."""
        return work()

    def run_on_all(self, work: Callable[[], T]) -> T:
        """Let every rank do `work`, which must not communicate with other ranks. If it fails on one rank, all raise
        SharedError; if it is interrupted on one, all raise Interrupted."""
        return work()

    def exchange(self, value: T) -> list[T]:
        """Return the values that all ranks passed, in the order of ranks."""
        return [value]

    def agree(self, *, stop: bool, save: bool) -> tuple[bool, bool]:
        """Return (whether any rank wants to stop, whether rank 0 wants to save), the same on every rank."""
        return stop, save

    # -- training --------------------------------------------------------------------------------------------------

    def check_model(self, model: Any) -> None:
        """Raise SharedError for a model whose results would depend on the number of ranks."""

    def shard_model(self, model: Any, *, sharding: str, dtype: str) -> Any:
        """Return a copy of the model that is sharded over the ranks; or the model itself if each rank holds all of
        it."""
        return model

    def is_sharded(self, model: Any) -> bool:
        """Return whether a model is sharded over the ranks; such a model casts its weights by itself."""
        return False

    def data_parallel(self, network: Any) -> Any:
        """Wrap a network that every rank holds whole. The returned module computes the same, and averages the gradients
        over the ranks."""
        return network

    def set_gradient_sync(self, network: Any, *, last: bool) -> None:
        """Say, before each micro-batch, whether it is the last of its step: ranks exchange gradients after the last one
        only."""

    def mean(self, value: T) -> T:
        """Return a tensor's mean over the ranks, without waiting for the device."""
        return value

    # -- state -----------------------------------------------------------------------------------------------------

    def gather(self, tensors: dict[str, Any], *, everywhere: bool = False) -> dict[str, Any]:
        """Assemble sharded tensors into whole ones, on rank 0 only or (`everywhere`) on all ranks; other ranks get only
        the tensors that are not sharded."""
        return tensors

    def shard(self, value: T, *, like: Any) -> T:
        """Return this rank's shard of a whole tensor, cut as `like` is; the tensor itself if `like` is not sharded."""
        return value

    # -- the end ---------------------------------------------------------------------------------------------------

    def failure(self, error: Exception) -> RankFailure:
        """Return the RankFailure that reports an error which the other ranks do not know of."""
        return RankFailure(str(error), is_reporter=True)

    def close(self) -> None:
        """Wait for all ranks, then destroy the process group."""

    def hard_exit(self, code: int) -> NoReturn:
        """End this process at once."""
        raise SystemExit(code)


ONE_RANK = Ranks()


def check_cells(cells: Iterable[Cell], *, ranks: int) -> None:
    """Refuse cells that these ranks cannot share, before anything starts.

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
