"""Gradients that ranks average while the backward pass goes on.

Weights are cut into buckets from the last to the first, which is about the order in which a backward pass finds their
gradients. Once a bucket's are there, its all-reduce begins, while the pass goes on to earlier blocks (a block that is
compiled hands over its gradients as one). The last bucket takes the loss along and begins after the pass.

Nobody is left waiting. All ranks begin the same all-reduces in the same order, whatever becomes of their passes: one
that runs out of memory begins those that are left with what happens to lie in them, for which it needs no memory. Then
the ranks agree, on their CPUs, whether anybody may use what came of it. (DistributedDataParallel's others would wait.)
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from bench.core.device import is_out_of_memory
from bench.train.precision import Working

BYTES = 25 << 20  # of a bucket, at least, as DistributedDataParallel's
WIDTH = 4  # numbers that a GPU reads at once, where they are aligned


class _Bucket:
    """Some weights with the places of their gradients in its memory, and those (numbers) that are still to come."""

    def __init__(self, pairs: list[tuple[Tensor, Tensor]], *, room: int) -> None:
        self.pairs = sorted(pairs, key=lambda pair: pair[0].numel() % WIDTH > 0)  # these would shift all that follow
        self.size = sum(weight.numel() for weight, _ in self.pairs) + room
        # gradients lie in memory as their weights do
        self.strides = [torch.empty_like(weight, device="meta").stride() for weight, _ in self.pairs]
        self.memory = self.pairs[0][0].new_empty(0)
        self.places: list[Tensor] = []
        self.missing: set[int] = set()

    def reset(self) -> None:
        self.missing = {number for number, (_, leaf) in enumerate(self.pairs) if leaf.requires_grad}

    def use(self, memory: Tensor) -> None:
        self.memory, offset = memory, 0
        for (weight, _), strides in zip(self.pairs, self.strides, strict=True):
            self.places.append(memory.as_strided(weight.shape, strides, offset))
            offset += weight.numel()


class Buckets:
    """The gradients of a model that every rank holds whole.

    A step is `reserve()`, the micro-batches, with `watch()` before the last and `complete()` after it, and `settle()`.
    Without `watch()` all is exchanged after the pass.

    Args:
        working: whose gradients.
        size: number of ranks.
        agree: the reason why memory ran out here, or None -> that of any rank, the same on all.
    """

    def __init__(self, working: Working, *, size: int, agree: Callable[[str | None], str | None]) -> None:
        self.working, self.size, self.agree = working, size, agree
        groups: list[list[tuple[Tensor, Tensor]]] = [[]]
        for weight, leaf in reversed(working.pairs):
            last = groups[-1]
            if last and (sum(w.nbytes for w, _ in last) >= BYTES or last[0][0].dtype != weight.dtype):
                groups.append([])
            groups[-1].append((weight, leaf))
        self.buckets = [_Bucket(group, room=group is groups[-1]) for group in groups]
        self._works: list[Any] = []  # one for each bucket that is on its way
        self._watching = False
        self._loss: Tensor | None = None
        for place, bucket in enumerate(self.buckets):
            bucket.reset()
            for number in bucket.missing:  # whoever holds the weights does not hold this
                found = functools.partial(_found, weakref.ref(self), place, number)
                bucket.pairs[number][1].register_post_accumulate_grad_hook(found)

    def reserve(self) -> str | None:
        """Take the memory of all buckets, once. Returns why a rank could not; then none of them has."""
        if self.buckets[0].places:
            return None
        reason, memory = None, list[Tensor]()
        try:
            memory = [bucket.pairs[0][0].new_zeros(bucket.size) for bucket in self.buckets]
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            reason = str(error) or "out of memory"
        if (reason := self.agree(reason)) is None:
            for bucket, its in zip(self.buckets, memory, strict=True):
                bucket.use(its)
        return reason

    def watch(self) -> None:
        """The backward pass that comes now finds the last part of all gradients."""
        self._watching = True

    def found(self, place: int, number: int) -> None:
        """The backward pass has made the gradient of a weight, number `number` of bucket `place`."""
        if not self._watching:
            return
        bucket = self.buckets[place]
        if number not in bucket.missing:  # it might be on its way
            raise RuntimeError("a gradient was found twice in one backward pass: several ranks cannot exchange it")
        bucket.missing.remove(number)
        while len(self._works) < len(self.buckets) - 1 and not self.buckets[len(self._works)].missing:
            self._begin(pack=True)

    def complete(self, loss: Tensor) -> None:
        """The pass is over: exchange what is left, and this loss (a scalar), whose mean `settle` writes into it."""
        self._watching, self._loss = False, loss
        while len(self._works) < len(self.buckets):
            self._begin(pack=True)

    def settle(self, reason: str | None) -> str | None:
        """Wait for all exchanges. Weights have the mean gradient if this returns None; else memory ran out on a rank.

        Args:
            reason: why memory ran out here; None if it sufficed.
        """
        self._watching = False
        while len(self._works) < len(self.buckets):
            self._begin(pack=False)
        reason = self.agree(reason)
        for work in self._works:
            wait_for(work)
        self._works.clear()
        for bucket in self.buckets:
            bucket.reset()
        if reason is None:
            torch._foreach_div_([bucket.memory for bucket in self.buckets], self.size)
            assert self._loss is not None
            self._loss.copy_(self.buckets[-1].memory[-1])
        self._loss = None
        return reason

    @torch.no_grad()
    def _begin(self, *, pack: bool) -> None:
        """Send the next bucket on its way. Weights that got no gradient keep none, as on one rank."""
        bucket = self.buckets[len(self._works)]
        if pack:
            self.working.collect_some(bucket.pairs, bucket.places)
            apart, gradients = list[Tensor](), list[Tensor]()
            for (weight, _), place in zip(bucket.pairs, bucket.places, strict=True):
                if weight.grad is not None and weight.grad is not place:
                    apart.append(place)
                    gradients.append(weight.grad)
                    weight.grad = place
            if apart:
                torch._foreach_copy_(apart, gradients)
            if bucket is self.buckets[-1] and self._loss is not None:
                bucket.memory[-1].copy_(self._loss)
        self._works.append(dist.all_reduce(bucket.memory, async_op=True))


def wait_for(work: Any) -> None:
    """Wait for an exchange. An error that this raises is of the connection between ranks."""
    work.wait()


def _found(buckets: weakref.ref[Buckets], place: int, number: int, _: Tensor) -> None:
    if (alive := buckets()) is not None:
        alive.found(place, number)
