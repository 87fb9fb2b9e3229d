"""Prepare for the first of many training steps with a compiled network: allocate memory, compile code, record CUDA
graphs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
from torch import Tensor

from bench.core.device import OutOfMemory, is_out_of_memory
from bench.train import compiled
from bench.train.recorded import Recorded
from bench.train.step import Step


def rehearse(step: Step, x_BCHW: Tensor, labels_B: Tensor, *, whole: bool = False) -> None:
    """Run all parts of a training step often enough that all memory is allocated and everything is compiled and
    recorded. The model is unchanged.

    The micro-batch that fits into memory is found without compiling, because each try would compile anew. But compiled
    code needs less memory, so before the micro-batch is divided, the whole one is tried with compiled code.

    Args:
        x_BCHW, labels_B: this rank's part of a batch.
        whole: raise an error instead of dividing the micro-batch.

    Raises:
        OutOfMemory: `whole` is set, and the micro-batch would have to be divided.
    """
    if step.compiles and step.ranks.size > 1:
        # the first rank of each machine compiles before the others, which find its code in torch's cache on disk
        ranks = step.ranks
        ranks.run_on_all(lambda: _compile_alone(step, x_BCHW, labels_B) if ranks.is_first_here else None)
    kept = [buffer.clone() for buffer in step.model.buffers()]  # such as running statistics of batch normalisation
    _allocate_optimizer_state(step)
    if step.compiles and not step.device.startswith("cpu"):
        asked = step.micro_batch
        _find_micro_batch(step, x_BCHW, labels_B)
        if whole and step.micro_batch < asked:
            step.clear()
            raise OutOfMemory
    for _ in range(compiled.REHEARSALS):
        step.gradients_that_fit(x_BCHW, labels_B, seed=0)
    step.clear()
    for buffer, value in zip(step.model.buffers(), kept, strict=True):
        buffer.copy_(value)


def _find_micro_batch(step: Step, x_BCHW: Tensor, labels_B: Tensor) -> None:
    asked = step.micro_batch
    with torch.compiler.set_stance("force_eager"), _unrecorded(step):
        step.gradients_that_fit(x_BCHW, labels_B, seed=0)
    if (found := step.micro_batch) == asked or step.ranks.size > 1:
        return
    step.micro_batch = asked
    try:
        with _unrecorded(step):
            step.clear()
            step.gradients(x_BCHW, labels_B, seed=0)
        found = asked
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
    # outside the handler, so that the traceback, which holds the activations, is gone
    step.go_on_with(found)


def _compile_alone(step: Step, x_BCHW: Tensor, labels_B: Tensor) -> None:
    """Run forward and backward of a step without the exchange of gradients, so that one rank can compile before the
    others. An out-of-memory error is ignored here: all ranks will meet it later."""
    with contextlib.suppress(torch.OutOfMemoryError):
        step.clear()
        step.gradients(x_BCHW, labels_B, seed=0, exchange=False)
    step.clear()


def _allocate_optimizer_state(step: Step) -> None:
    """Allocate the optimizer's state by an update at learning rate 0 with gradients of zero, and reset its values.

    Its memory is then taken before all other allocations, so that nothing runs out of memory once graphs are recorded.
    """
    optimizer = step.optimizer
    if optimizer.state:
        return
    step.rule.set_rate(0.0)
    for parameter in step.weights:
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    step.clear()
    if not step.rule.fused:  # such an optimizer's initial state need not be zeros
        step.rule.state.clear()
        return
    for state in optimizer.state.values():
        for value in filter(torch.is_tensor, state.values()):
            value.zero_()


@contextlib.contextmanager
def _unrecorded(step: Step) -> Iterator[None]:
    before = step.both_ways
    if isinstance(before, Recorded):
        step.both_ways = before.run
    try:
        yield
    finally:
        step.both_ways = before
