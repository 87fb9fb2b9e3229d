"""The processes that train one cell together, as the rest sees them; here the usual case, one process.

`bench.train.distributed.Together` is several. Every rank makes the same calls in the same order. What is decided or
written is decided and written by the first rank; what is trained does not depend on how many there are. No torch here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NoReturn, TypeVar

from bench.core.errors import UserError
from bench.core.spec import Cell

T = TypeVar("T")

SHARED_JOBS = ("train",)  # the others time something, or do not train
EXIT_AGAIN = 75  # of ranks that end with `StartAgain`; sysexits.h: a temporary failure, try again


class RankError(UserError):
    """A failure that every rank has been told of: all of them raise it, and can go on with the next cell."""


class StartAgain(Exception):
    """Memory ran out on this rank where the others wait for it, so that they cannot agree on smaller micro-batches: all
    ranks have to start again from what is saved, with those."""

    def __init__(self, micro_batch: int) -> None:
        super().__init__(f"ran out of memory; the next start goes on with {micro_batch} images at a time")
        self.micro_batch = micro_batch


class Lost(Exception):
    """Ranks that can no longer reach each other: all of them end.

    Args:
        what: which rank, and why, as far as this rank can tell. speaks: whether this rank is the one to say so.
        again: whether starting again, as things are, is all there is to do.
    """

    def __init__(self, what: str, *, speaks: bool, again: bool = False) -> None:
        super().__init__(what)
        self.speaks, self.again = speaks, again


class Ranks:
    """One rank, and the interface of several. `number` counts from 0 to `size` - 1."""

    number = 0
    size = 1

    @property
    def first(self) -> bool:
        """Whether this rank decides and writes."""
        return self.number == 0

    def share(self, batch: int) -> slice:
        """This rank's part of a global batch: the parts are equal, contiguous and in the order of the ranks."""
        each = batch // self.size
        return slice(self.number * each, (self.number + 1) * each)

    # -- decisions -------------------------------------------------------------------------------------------------

    def lead(self, work: Callable[[], T]) -> T:
        """The first rank does `work`; the others wait, and get what it returned or raise what it raised."""
        return work()

    def everywhere(self, work: Callable[[], T]) -> T:
        """Every rank does `work`; where it fails on one, all raise RankError. It must not call another rank."""
        return work()

    def agree(self, *, stop: bool, save: bool) -> tuple[bool, bool]:
        """(whether to stop: any rank's wish; whether to save: the first rank's), the same on every rank."""
        return stop, save

    # -- training --------------------------------------------------------------------------------------------------

    def check(self, model: Any) -> None:
        """Refuse a model whose results would depend on the number of ranks (RankError)."""

    def shard(self, model: Any, *, sharding: str, dtype: str) -> Any:
        """A copy of the model that training spreads over the ranks, or the model itself where each holds all of it."""
        return model

    def shards(self, model: Any) -> bool:
        """Whether a model is spread over the ranks; it then sees to its precision by itself."""
        return False

    def accumulate(self, model: Any, *, last: bool) -> None:
        """Before each micro-batch: gradients of a model that is spread over ranks travel after the last one only."""

    def lacking(self, reason: str | None) -> str | None:
        """None if memory sufficed on every rank; the same on all. Where it did not, the reason of one such rank."""
        return reason

    def packed(self, model: Any, loss: T) -> T:
        """A model's gradients and its loss in one tensor, ready to be averaged: all that `average` needs room for."""
        return loss

    def average(self, model: Any, packed: T) -> T:
        """Make a model's gradients their mean over the ranks; returns that of the loss."""
        return packed

    def mean(self, value: T) -> T:
        """A tensor's mean over the ranks, without waiting for the device."""
        return value

    # -- state -----------------------------------------------------------------------------------------------------

    def whole(self, tensors: dict[str, Any]) -> dict[str, Any]:
        """Sharded tensors put together, on the first rank; the others get the plain ones only."""
        return tensors

    def part(self, value: T, *, like: Any) -> T:
        """This rank's shard of a whole tensor, cut as `like` is; as it is where `like` is not sharded."""
        return value

    # -- the end ---------------------------------------------------------------------------------------------------

    def lost(self, error: Exception) -> Lost:
        """What to say of an error that the other ranks know nothing of."""
        return Lost(str(error), speaks=True)

    def leave(self) -> None:
        """Part in peace."""

    def abandon(self, code: int) -> NoReturn:
        """End this process at once."""
        raise SystemExit(code)


ALONE = Ranks()


def check_cells(cells: Iterable[Cell], *, ranks: int) -> None:
    """Refuse cells that these ranks cannot share, before anything starts.

    Raises:
        UserError: a global batch that they do not divide, with numbers that do; a job for one process.
    """
    for cell in cells:
        batch = cell.recipe.batch
        if cell.job not in SHARED_JOBS:
            raise UserError(f"{cell.model}: the {cell.job} job is done by one process.", "Leave --ranks out.")
        if cell.horizons != (0,) and batch % ranks:
            fitting = ", ".join(str(n) for n in range(1, min(batch, 64) + 1) if batch % n == 0)
            raise UserError(
                f"{cell.model}: a batch of {batch} images cannot be shared equally by {ranks} ranks.",
                f"Numbers of ranks that divide it: {fitting}.",
            )
