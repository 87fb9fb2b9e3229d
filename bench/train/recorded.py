"""One CUDA graph for forward, loss and backward: a small model's step is shorter than it takes to launch its kernels.

A graph replays kernels at the addresses that they were recorded at, so inputs are copied to where it reads them, and
gradients appear where it writes them. It belongs to whoever recorded it and is freed with them, or by `forget` where
memory runs out; then it is recorded again.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable, Iterable
from typing import Any

import torch
from torch import Tensor

from bench.core import device
from bench.core.device import is_out_of_memory

WARM_UP = 3  # calls before the recording: compilation, and buffers that libraries keep
_all: weakref.WeakSet[Recorded] = weakref.WeakSet()


def forget() -> None:
    """Drop every graph of this process: what it was recorded in cannot be used by anything else."""
    for recorded in tuple(_all):
        recorded.drop()


device.BEFORE_RELEASE.append(forget)


class Recorded:
    """`run(*tensors, **constants) -> tensor`, recorded once for each combination of shapes and constants.

    Args:
        run: reads its tensors, and writes only to new ones and to `.grad` of `leaves()`.
        leaves: whose gradients it finds; without any it is recorded without gradients.

    Attributes:
        refusal: why nothing is recorded any more: a call that a graph cannot hold. None while all is well.
    """

    def __init__(self, run: Callable[..., Tensor], *, leaves: Callable[[], Iterable[Tensor]] = tuple) -> None:
        self.run, self.leaves = run, leaves
        self.refusal: str | None = None
        self._graphs: dict[Hashable, _Graph] = {}
        _all.add(self)

    def __call__(self, *inputs: Tensor, **constants: Any) -> Tensor:
        """The output, which stays valid until the next call."""
        key = (*((x.shape, x.dtype) for x in inputs), *constants.items())
        if self.refusal is None and key not in self._graphs:
            try:
                self._graphs[key] = _Graph(self, inputs, constants)
            except Exception as error:
                if is_out_of_memory(error):
                    raise
                self.refusal = f"{type(error).__name__}: {error}".splitlines()[0]
        if self.refusal is not None:
            self._graphs.clear()
            return self.run(*inputs, **constants)
        return self._graphs[key].replay(inputs)

    def drop(self) -> None:
        """Free the memory of all graphs."""
        self._graphs.clear()


class _Graph:
    def __init__(self, recorded: Recorded, inputs: tuple[Tensor, ...], constants: dict[str, Any]) -> None:
        self.inputs = [x.clone() for x in inputs]
        leaves = list(recorded.leaves())
        before = [leaf.grad for leaf in leaves]  # of the micro-batches before this one

        def clear() -> None:
            for leaf in leaves:
                leaf.grad = None

        aside, own = torch.cuda.Stream(), torch.cuda.current_stream()
        aside.wait_stream(own)
        with torch.cuda.stream(aside):  # what runs there is not recorded: torch's notes on CUDA graphs
            for _ in range(WARM_UP):
                clear()
                recorded.run(*self.inputs, **constants)
        own.wait_stream(aside)
        clear()
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph, capture_error_mode="thread_local"):  # other threads may allocate meanwhile
            self.output = recorded.run(*self.inputs, **constants)
        self.gradients = [(leaf, leaf.grad) for leaf in leaves if leaf.grad is not None]
        for leaf, gradient in zip(leaves, before, strict=True):
            leaf.grad = gradient

    def replay(self, inputs: tuple[Tensor, ...]) -> Tensor:
        for own, given in zip(self.inputs, inputs, strict=True):
            own.copy_(given)
        self.graph.replay()
        for leaf, gradient in self.gradients:
            leaf.grad = gradient if leaf.grad is None else leaf.grad.add_(gradient)
        return self.output
