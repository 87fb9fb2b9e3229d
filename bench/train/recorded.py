"""CUDA graphs: one for forward, loss and backward, one for the update. A small model's step is shorter than it takes to
launch its kernels.

A graph replays kernels at the addresses that they were recorded at, so inputs are copied to where it reads them, and
gradients appear where it writes them. It belongs to whoever recorded it and is freed with them, or by `forget` where
memory runs out; then it is recorded again.
"""

from __future__ import annotations

import contextlib
import functools
import operator
import weakref
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from bench.core import device
from bench.core.device import DAMAGED, generators, is_out_of_memory
from bench.core.errors import UserError
from bench.study.cell import Recipe
from bench.train import modes
from bench.train.update import Ema, Update

T = TypeVar("T")

WARM_UP = 3  # calls before the recording: compilation, and buffers that libraries keep
_all: weakref.WeakSet[Recorded | RecordedUpdate] = weakref.WeakSet()


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
        buffers: that it changes; a recording, which runs it several times, leaves them and the generators as they were.

    Attributes:
        obstacle: why nothing is recorded any more: a call that a graph cannot hold. None while all is well.
    """

    def __init__(
        self,
        run: Callable[..., Tensor],
        *,
        leaves: Callable[[], Iterable[Tensor]] = tuple,
        buffers: Callable[[], Iterable[Tensor]] = tuple,
        device: str,
    ) -> None:
        self.run, self.leaves, self.buffers, self.device = run, leaves, buffers, device
        self.obstacle: str | None = None
        self._graphs: dict[Hashable, _Graph] = {}
        _all.add(self)

    def __call__(self, *inputs: Tensor, **constants: Any) -> Tensor:
        """The output, which stays valid until the next call."""
        key = (*((x.shape, x.dtype) for x in inputs), *constants.items())
        if self.obstacle is None and key not in self._graphs:
            try:
                self._graphs[key] = _Graph(self, inputs, constants)
            except Exception as error:
                if isinstance(error, UserError) or is_out_of_memory(error):
                    raise
                self.obstacle = first_line(error)
        if self.obstacle is not None:
            self._graphs.clear()
            return self.run(*inputs, **constants)
        return self._graphs[key].replay(inputs)

    def drop(self) -> None:
        """Free the memory of all graphs."""
        self._graphs.clear()


def record(run: Callable[[], T], *, device: str) -> tuple[torch.cuda.CUDAGraph, T]:
    """The kernels that `run` would launch, as a graph, and its result, which has no values before the first replay.

    Raises:
        UserError: it could not be ended, under a torch whose allocator then takes it to be still going on: memory that
            is given back is never free again, so this process must not go on.
    """
    graph, raised = torch.cuda.CUDAGraph(), 0
    try:  # other threads may allocate meanwhile
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            try:
                return graph, run()
            except Exception as error:
                raised = id(error)  # not the error, whose traceback holds the activations
                raise
    except Exception as error:
        # where torch has ended the recording, the error of `run` itself comes through, such as memory that ran out
        if id(error) == raised or torch.__version__ >= "2.12":
            raise
        DAMAGED.add(device)
        raise UserError(
            f"A step cannot be recorded as a CUDA graph: {first_line(error)}.",
            f"Set {modes.VARIABLE}=default, which records nothing; torch 2.12 or newer goes on by itself.",
        ) from error


def make_recordable(update: Update, *, device: str) -> None:
    """Have an update read its rate from the device, as a float32, so that a CUDA graph can be told another one."""
    # what torch warns of where a graph could be recorded and is not, as in every first step
    update.optimizer._warned_capturable_if_run_uncaptured = True  # type: ignore[attr-defined]
    rate = torch.zeros((), device=device)
    for group in update.optimizer.param_groups:
        group |= {"lr": rate, "capturable": True}


def small_update(recipe: Recipe, *, dtype: str, device: str) -> Update:
    """An update of a few weights by a recipe, whose gradients are there, to be tried."""
    weight = nn.Parameter(torch.linspace(-1.0, 1.0, 8, device=device))
    weight.grad = torch.linspace(3.0, -1.0, 8, device=device)
    average = Ema(nn.ParameterList([weight]), recipe.average)
    made = Update([weight], recipe=recipe, dtype=dtype, device=device, average=average)
    make_recordable(made, device=device)
    made.set_rate(recipe.lr)
    return made


class RecordedUpdate:
    """`run()`, which changes tensors where they lie. A recording launches nothing, so the one call in which it is made
    changes them once, too. It is replayed while what `tensors()` gives are the same ones: after a restart of training
    they may be others, and `run` is called as it is written until they stay.

    Args:
        run: reads and writes only its weights, tensors that its `tensors()` has, and new ones.
        like_it: makes a small one, on which it is found out first whether such updates can be recorded.

    Attributes:
        obstacle: as of `Recorded`.
    """

    def __init__(
        self,
        run: Update,
        *,
        like_it: Callable[[], Update],
        device: str,
    ) -> None:
        self.run, self.like_it, self.device = run, like_it, device
        self.obstacle: str | None = None
        self._held: list[Tensor | None] = []
        self._graph: torch.cuda.CUDAGraph | None = None
        _all.add(self)

    def __call__(self) -> None:
        held = self.run.tensors()
        if len(held) != len(self._held) or not all(map(operator.is_, held, self._held)):
            self.drop()
        elif self._graph is None and self.obstacle is None:
            self.obstacle = _obstacle(self.like_it, device=self.device)
            if self.obstacle is None:
                try:
                    self._graph, _ = record(self.run, device=self.device)
                except Exception as error:
                    if isinstance(error, UserError) or is_out_of_memory(error):
                        raise
                    self.obstacle = first_line(error)
        if self._graph is not None:
            return self._graph.replay()
        self.run()
        self._held = self.run.tensors()

    def drop(self) -> None:
        """Forget the graph, and the tensors that it writes to."""
        self._graph, self._held = None, []


def _obstacle(made: Callable[[], Update], *, device: str) -> str | None:
    """Why an update cannot be recorded; None where a recorded one changes weights as it does when it is not.

    Raises:
        RuntimeError: memory ran out, which is no obstacle for the next step.
    """
    try:
        plain, replayed = made(), made()
        for update in (plain, plain, replayed):
            update()
        with forbidden_to_wait():
            plain()
        graph, _ = record(replayed, device=device)
        for _ in range(2):
            graph.replay()
        same = all(map(torch.equal, plain.weights, replayed.weights))
        return None if same else "a recorded one gives other weights"
    except Exception as error:
        if isinstance(error, UserError) or is_out_of_memory(error):
            raise
        return first_line(error)


def first_line(error: Exception) -> str:
    """An error's kind and the first line of what it says."""
    return f"{type(error).__name__}: {error}".splitlines()[0]


@contextlib.contextmanager
def forbidden_to_wait() -> Iterator[None]:
    """Inside, a call that waits for the device is an error, as it would be in a recording that it spoils."""
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


@contextlib.contextmanager
def _unchanged(recorded: Recorded) -> Iterator[None]:
    """Afterwards buffers, gradients and what draws are as they were before."""
    buffers = [(buffer, buffer.clone()) for buffer in recorded.buffers()]
    gradients = [(leaf, leaf.grad) for leaf in recorded.leaves()]  # of the micro-batches before this one
    states = [(generator, generator.get_state()) for generator in generators(recorded.device)]
    try:
        yield
    finally:
        for buffer, value in buffers:
            buffer.detach().copy_(value)
        for leaf, gradient in gradients:
            leaf.grad = gradient
        for generator, state in states:
            generator.set_state(state)


@functools.cache
def _aside(device: str) -> torch.cuda.Stream:
    """The stream of all warm-ups. cuBLAS keeps a workspace for each stream that it has seen, 32 MiB on an H100, to the
    process's end: a stream for each network would keep two gigabytes in a process that fine-tunes."""
    return torch.cuda.Stream()


class _Graph:
    def __init__(self, recorded: Recorded, inputs: tuple[Tensor, ...], constants: dict[str, Any]) -> None:
        self.inputs = [x.clone() for x in inputs]
        leaves = list(recorded.leaves())

        def clear() -> None:
            for leaf in leaves:
                leaf.grad = None

        aside, own = _aside(recorded.device), torch.cuda.current_stream()
        with _unchanged(recorded):
            aside.wait_stream(own)
            with torch.cuda.stream(aside):  # what runs there is not recorded: torch's notes on CUDA graphs
                for number in range(WARM_UP):
                    clear()
                    last = number == WARM_UP - 1  # whoever waits is told now: a recording could not be ended cleanly
                    with forbidden_to_wait() if last else contextlib.nullcontext():
                        recorded.run(*self.inputs, **constants)
            own.wait_stream(aside)
            clear()
            self.graph, self.output = record(lambda: recorded.run(*self.inputs, **constants), device=recorded.device)
            self.gradients = [(leaf, leaf.grad) for leaf in leaves if leaf.grad is not None]

    def replay(self, inputs: tuple[Tensor, ...]) -> Tensor:
        for own, given in zip(self.inputs, inputs, strict=True):
            own.copy_(given)
        self.graph.replay()
        for leaf, gradient in self.gradients:
            leaf.grad = gradient if leaf.grad is None else leaf.grad.add_(gradient)
        return self.output
