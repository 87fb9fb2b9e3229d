"""Preparation of the first of many steps where a network is compiled: all is allocated, compiled and recorded."""

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
    """Do all of a step, often enough that everything is allocated, compiled and recorded; changes nothing.

    The batch that fits is found without compiling, which each try would do again; but compiled code keeps less, so the
    whole batch gets one try compiled before it is divided.

    Args:
        whole: a batch that has to be divided is of no use.

    Raises:
        OutOfMemory: it has to be.
    """
    if step.compiles and step.ranks.size > 1:
        # the first rank of each machine before the others, which find its code in torch's cache on the disk
        ranks = step.ranks
        ranks.run_on_all(lambda: _compile_alone(step, x_BCHW, labels_B) if ranks.is_first_here else None)
    kept = [buffer.clone() for buffer in step.model.buffers()]  # statistics over batches
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
    # outside the handler the traceback, which holds the activations, is gone
    step.go_on_with(found)


def _compile_alone(step: Step, x_BCHW: Tensor, labels_B: Tensor) -> None:
    """All of a step that needs no other rank; memory may run out, which all of them find later."""
    with contextlib.suppress(torch.OutOfMemoryError):
        step.clear()
        step.gradients(x_BCHW, labels_B, seed=0, exchange=False)
    step.clear()


def _allocate_optimizer_state(step: Step) -> None:
    """Makes an update at rate 0 with gradients of zero, which is then forgotten: later allocations find its memory
    taken, and nothing runs out of memory once graphs are recorded."""
    optimizer = step.optimizer
    if optimizer.state:
        return
    step.rule.set_rate(0.0)
    for parameter in step.weights:
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    step.clear()
    if not step.rule.fused:  # zeros in the place of its state are not the state that it begins with
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
