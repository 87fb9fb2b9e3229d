"""A batch in parts, one per core of a CPU, each through forward, loss and backward on a thread of its own.

Several threads that share one operation wait for each other at its end, hundreds of times a step; parts wait once. Each
has the gradients of its images to itself, and they are added up in the order of the parts: the same bits on every run
with this number of threads. Only where an image's result depends neither on random draws nor on the other images.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from threading import Barrier

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

DIFFERENCE = 0.05  # relative, of outputs: rounding to bfloat16 makes far less, statistics over images far more


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    """Threads that stay, each of which computes alone; the others of this process keep their number."""
    before = torch.get_num_threads()
    pool = ThreadPoolExecutor(threads, thread_name_prefix="part", initializer=torch.set_num_threads, initargs=(1,))
    all_here = Barrier(threads)  # each takes one of these, so that all start now
    for started in [pool.submit(all_here.wait) for _ in range(threads)]:
        started.result()
    torch.set_num_threads(before)  # what threads that are yet to come begin with
    return pool


def at_once(works: Sequence[Callable[[], Tensor]]) -> list[Tensor]:
    """What each returns. All have ended when this does; then the first that failed raises its error."""
    futures = [_pool(len(works)).submit(work) for work in works]
    for future in futures:
        future.exception()  # waits
    return [future.result() for future in futures]


@torch.no_grad()
def divides(network: nn.Module, call: Callable[[Tensor], object], x_BCHW: Tensor, *, parts: int) -> bool:
    """Whether a batch can be done in parts: tried with one pass of the whole and one of the parts, in training mode."""
    if any(isinstance(module, _BatchNorm) for module in network.modules()):
        return False
    state, buffers = torch.get_rng_state(), [(b, b.clone()) for b in network.buffers()]
    whole = call(x_BCHW)
    drew = not torch.equal(state, torch.get_rng_state())
    changed = any(not torch.equal(b, before) for b, before in buffers)
    for buffer, before in buffers:
        buffer.copy_(before)
    torch.set_rng_state(state)
    if drew or changed or not isinstance(whole, Tensor):
        return False
    found = [call(part) for part in x_BCHW.tensor_split(parts)]
    if not all(isinstance(part, Tensor) for part in found):
        return False
    together = torch.cat(found)  # type: ignore[arg-type]
    return together.shape == whole.shape and bool((together - whole).norm() <= DIFFERENCE * whole.norm())
