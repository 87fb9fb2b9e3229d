"""One optimizer step, shared by pre-training, fine-tuning and the speed suite."""

from __future__ import annotations

import contextlib
from typing import Any

import torch
from torch import Tensor, nn

from bench.core.device import is_out_of_memory, release
from bench.core.seeds import stream
from bench.core.spec import Recipe
from bench.cost.trace import label
from bench.train import compiled, precision
from bench.train.optim import make_loss, make_optimizer
from bench.train.ranks import ONE_RANK, Ranks, RestartNeeded


class TooLarge(torch.OutOfMemoryError):
    """Not even one image at a time fits: on some rank, and all of them raise it."""


class Step:
    """Forward, loss, backward, clipping and update of one batch.

    Where memory runs out the micro-batch is halved and the step done again from the weights before it: nothing is
    changed before all gradients are there. Then `micro_batch` is the size that fitted, also for the steps that follow.
    Ranks that hold the whole model each find their gradients before any are exchanged, so that they can agree on it.
    Of a model that is spread over ranks the others are waiting in the middle of a pass: all start again.

    Args:
        model: on `device`, in training mode.
        recipe: optimizer, precision, loss, clipping, and the first micro-batch: images that pass through the network at
            once. Gradients add up to those of the whole batch, within rounding; but dropout draws differ, as would
            statistics over a batch.
        ranks: the processes that share each batch. Dropout follows the micro-batch's place in the global batch, so
            that draws do not depend on the number of ranks where `micro_batch` divides every rank's share.
    """

    def __init__(
        self,
        *,
        model: nn.Module,
        recipe: Recipe,
        device: str,
        ranks: Ranks = ONE_RANK,
    ) -> None:
        self.model, self.recipe, self.device, self.ranks = model, recipe, device, ranks
        self.optimizer = make_optimizer(model, recipe)
        self.micro_batch = recipe.micro_batch or recipe.batch
        self.dtype = precision.resolve(recipe.dtype, device, model)
        self.compile_mode, self.sharded = "off", ranks.is_sharded(model)
        self.working = precision.Working(model, "float32" if self.sharded else self.dtype)
        if not self.sharded:
            self.compile_mode = compiled.mode_for(device, ranks=ranks.size)
            self.working.network = compiled.compiled(self.working.network, mode=self.compile_mode)
            self.working.keeps_gradients = self.compile_mode not in compiled.WITH_GRAPHS
        self.loss = make_loss(recipe)

    @property
    def compiles(self) -> bool:
        return self.compile_mode != "off"

    def attention_kernels(self) -> tuple[str, ...]:
        """Names of the attention kernels in use, the fastest first; none for a network without attention."""
        return compiled.chosen_kernels(self.model, dtype=precision.DTYPES[self.dtype], device=self.device)

    def __call__(self, x_BCHW: Tensor, labels_B: Tensor, *, lr: float, seed: int) -> Tensor:
        """Update the model once, at rate `lr`; dropout draws from `seed`. Ranks get their own share of the batch.

        Returns:
            The mean loss over the global batch, detached and on the device: reading it is what waits for the device.

        Raises:
            TooLarge: not even one image at a time fits.
            RestartNeeded: memory ran out on this rank where the others wait for it; what the ranks shall begin with.
        """
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        try:
            loss = self._gradients_that_fit(x_BCHW, labels_B, seed)
            with label("optimizer"):
                if self.recipe.clip:
                    nn.utils.clip_grad_norm_(self.model.parameters(), self.recipe.clip, foreach=True)
                self.optimizer.step()
        except (RuntimeError, MemoryError) as error:
            smaller = min(self.micro_batch, len(labels_B)) // 2
            if self.ranks.size == 1 or not smaller or isinstance(error, TooLarge) or not is_out_of_memory(error):
                raise
            raise RestartNeeded(smaller) from error
        return loss

    def rehearse(self, x_BCHW: Tensor, labels_B: Tensor) -> None:
        """Do all of a step but the update, often enough that everything is compiled and recorded; changes nothing."""
        kept = [buffer.clone() for buffer in self.model.buffers()]  # statistics over batches
        for _ in range(compiled.REHEARSALS):
            self._gradients_that_fit(x_BCHW, labels_B, seed=0)
        self.optimizer.zero_grad(set_to_none=True)
        for buffer, value in zip(self.model.buffers(), kept, strict=True):
            buffer.copy_(value)

    def _gradients_that_fit(self, x_BCHW: Tensor, labels_B: Tensor, seed: int) -> Tensor:
        """Leave the gradients of the global batch with the weights; returns its loss."""
        while True:
            found: Tensor | None = None
            lacking: str | None = None
            try:
                self.optimizer.zero_grad(set_to_none=True)
                self.working.refresh()
                found = self._gradients(x_BCHW, labels_B, seed)
            except (RuntimeError, MemoryError) as error:
                if self.sharded or not is_out_of_memory(error):
                    raise
                lacking = str(error) or "out of memory"
            # outside the handler the traceback, which holds the activations, is gone
            lacking = lacking if self.sharded else self.ranks.first_oom(lacking)
            if found is not None and lacking is None:
                return self.ranks.average_gradients(self.model, found)
            del found
            self.optimizer.zero_grad(set_to_none=True)
            if min(self.micro_batch, len(labels_B)) == 1:
                raise TooLarge(lacking)
            self.micro_batch = min(self.micro_batch, len(labels_B)) // 2
            if self.compiles:
                compiled.forget()
            release(self.device)

    def _gradients(self, x_BCHW: Tensor, labels_B: Tensor, seed: int) -> Tensor:
        """Accumulate the gradient of the mean loss of this rank's batch, one micro-batch after another.

        Returns:
            What the ranks are to average; no rank has waited for another yet, unless the model is spread over them.
        """
        batch = len(labels_B)
        parts = list(zip(x_BCHW.split(self.micro_batch), labels_B.split(self.micro_batch), strict=True))
        total = torch.zeros((), device=self.device)
        for index, (x_bCHW, labels_b) in enumerate(parts):
            place = self.ranks.rank * len(parts) + index  # in the global batch
            torch.manual_seed(stream(seed, "micro-batch", place) if place else seed)
            self.ranks.set_gradient_sync(self.model, last=index == len(parts) - 1)
            with label("forward"), self._attention(len(labels_b)):
                loss = self.loss(self.working(x_bCHW), labels_b)
            with label("backward"):
                # each image weighs 1 / batch, whatever the size of the micro-batch it is in
                loss = loss * (len(labels_b) / batch)
                loss.backward()
                self.working.collect()
            total += loss.detach()
        return self.ranks.flatten_gradients(self.model, total)

    def _attention(self, batch: int) -> contextlib.AbstractContextManager[Any]:
        """The fastest fused kernel for this network, measured at first use."""
        dtype = precision.DTYPES[self.dtype]
        return compiled.attention(self.model, batch=batch, dtype=dtype, device=self.device)
