"""Record CUDA graphs of a training step: one of forward, loss and backward, one of the update. Replaying a graph is
faster where the kernels of a small model take less time to run than to launch.

A graph replays kernels at the memory addresses at which they were recorded, so inputs are copied to where it reads
them, and gradients appear where it writes them. A graph belongs to the object that recorded it and is freed with that,
or by `forget` when memory runs out; then it is recorded again.
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

WARM_UP = 3  # calls before a recording, which compile code and allocate buffers that libraries keep
_all: weakref.WeakSet[Recorded | RecordedUpdate] = weakref.WeakSet()


def forget() -> None:
    """Free all graphs of this process when memory is short, because nothing else can use the memory in which a graph
    was recorded."""
    for recorded in tuple(_all):
        recorded.drop()


device.BEFORE_RELEASE.append(forget)


class Recorded:
    """A function `run(*tensors, **constants) -> tensor` that is recorded as a CUDA graph once for each combination of
    shapes and constants, and replayed afterwards.

    Args:
        run: the function. It may write only to new tensors and to `.grad` of `leaves()`.
        leaves: function that returns the tensors whose gradients `run` computes; empty if it computes none.
        buffers: function that returns the buffers (such as running statistics) that `run` changes. Recording calls
            `run` several times, and then restores these buffers and the random generators.

    Attributes:
        obstacle: why nothing is recorded any more (`run` does something that a graph cannot hold); None if there is no
            such reason.
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
        """Return the output of `run` for these tensors and constants. The output stays valid until the next call."""
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
    """Record as a CUDA graph the kernels that `run` would launch, without running them. Return (the graph, the result
    of `run`, whose tensors have no values before the first replay).

    Raises:
        UserError: the recording could not be ended, and torch is older than 2.12. Its allocator then takes the
            recording to be still going on and never reuses freed memory, so this process must not go on.
    """
    graph, raised = torch.cuda.CUDAGraph(), 0
    try:  # other threads may allocate meanwhile
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            try:
                return graph, run()
            except Exception as error:
                raised = id(error)  # the error itself is not kept, because its traceback holds the activations
                raise
    except Exception as error:
        # if torch could end the recording, the error of `run` itself arrives here, such as memory that ran out
        if id(error) == raised or torch.__version__ >= "2.12":
            raise
        DAMAGED.add(device)
        raise UserError(
            f"A step cannot be recorded as a CUDA graph: {first_line(error)}.",
            f"Set {modes.VARIABLE}=default, which records nothing; torch 2.12 or newer goes on by itself.",
        ) from error


def make_recordable(update: Update, *, device: str) -> None:
    """Make an update of the weights read its learning rate from a float32 tensor on the device. The rate of a recorded
    CUDA graph can then be changed."""
    # suppress torch's warning where a graph could be recorded and is not, as in every first step
    update.optimizer._warned_capturable_if_run_uncaptured = True  # type: ignore[attr-defined]
    rate = torch.zeros((), device=device)
    for group in update.optimizer.param_groups:
        group |= {"lr": rate, "capturable": True}


def small_update(recipe: Recipe, *, dtype: str, device: str) -> Update:
    """Return an update of eight weights by a recipe, with gradients, that can be recorded (`make_recordable`). With it
    is tried whether updates by this recipe can be recorded.

    Args:
        dtype: the precision in which gradients are computed, a key of `precision.DTYPES`.
    """
    weight = nn.Parameter(torch.linspace(-1.0, 1.0, 8, device=device))
    weight.grad = torch.linspace(3.0, -1.0, 8, device=device)
    average = Ema(nn.ParameterList([weight]), recipe.average)
    made = Update([weight], recipe=recipe, dtype=dtype, device=device, average=average)
    make_recordable(made, device=device)
    made.set_rate(recipe.lr)
    return made


class RecordedUpdate:
    """An update of the weights, in place, that is recorded as a CUDA graph and replayed.

    Recording launches nothing, so the call that records also replays once. The graph is replayed while `run.tensors()`
    returns the same tensors. When they change, as after a restart of training, `run` is called unrecorded until they
    stay the same.

    Args:
        run: the update. It may read and write only its weights, the tensors of its `tensors()`, and new ones.
        like_it: function that makes a small update of the same kind, with which it is tried first whether such updates
            can be recorded.

    Attributes:
        obstacle: why nothing is recorded any more; None if there is no such reason.
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
        """Drop the graph, and the references to the tensors that it writes to."""
        self._graph, self._held = None, []


def _obstacle(made: Callable[[], Update], *, device: str) -> str | None:
    """Return why updates of a kind cannot be recorded; None if one changes its weights in the same way recorded and
    unrecorded.

    Args:
        made: function that makes a small update of that kind.

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
    """Return the name of an error's class and the first line of its message."""
    return f"{type(error).__name__}: {error}".splitlines()[0]


@contextlib.contextmanager
def forbidden_to_wait() -> Iterator[None]:
    """Inside the `with` block, a call that waits for the device raises an error. While a graph is recorded, such a call
    would spoil it."""
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


@contextlib.contextmanager
def _unchanged(recorded: Recorded) -> Iterator[None]:
    """At the end of the `with` block, restore the buffers, gradients and random generators that calls of a function to
    be recorded have changed."""
    buffers = [(buffer, buffer.clone()) for buffer in recorded.buffers()]
    gradients = [(leaf, leaf.grad) for leaf in recorded.leaves()]  # sums over earlier micro-batches
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
    """Return the one stream on which functions are warmed up before they are recorded. cuBLAS keeps a workspace (32 MiB
    on an H100) for each stream that it has seen until the process ends: with a stream per network, a process that
    fine-tunes would keep two gigabytes."""
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
            with torch.cuda.stream(aside):  # a stream of its own for warm-up: torch's notes on CUDA graphs
                for number in range(WARM_UP):
                    clear()
                    last = number == WARM_UP - 1  # waiting for the device raises here: it would break the recording
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
