"""One optimizer step: what trains, what fine-tunes and what the speed suite times."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from bench.cost.profile import label
from bench.cost.speed import is_out_of_memory, release
from bench.spec import Recipe
from bench.train import precision
from bench.train.loss import make_loss


class Step:
    """Forward, loss, backward, clipping and update of one batch.

    Where memory runs out the micro-batch is halved and the step done again from the weights before it: nothing is
    changed before all gradients are there. Then `micro_batch` says what fitted, and stays for the steps that follow.

    Args:
        model: on `device`, in training mode.
        optimizer: of the model's parameters; its rate is set by every call.
        recipe: precision, loss and clipping.
        micro_batch: images that pass through the network at once; None for the recipe's. Gradients add up to those of
            the whole batch, within rounding; but dropout draws differ, as would statistics over a batch.
    """

    def __init__(
        self,
        *,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        recipe: Recipe,
        device: str,
        micro_batch: int | None = None,
    ) -> None:
        self.model, self.optimizer, self.recipe, self.device = model, optimizer, recipe, device
        self.micro_batch = micro_batch or recipe.micro_batch or recipe.batch
        self.dtype = precision.resolve(recipe.dtype, device, model)
        self.working = precision.Working(model, self.dtype)
        self.loss = make_loss(recipe)

    def __call__(self, x_BCHW: Tensor, labels_B: Tensor, *, lr: float, seed: int) -> Tensor:
        """Update the model once, at rate `lr`; dropout draws from `seed`.

        Returns:
            The mean loss over the batch, detached and on the device: reading it is what waits for the device.

        Raises:
            RuntimeError, MemoryError: not even one image at a time fits.
        """
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        loss = self._gradients_that_fit(x_BCHW, labels_B, seed)
        with label("optimizer"):
            if self.recipe.clip:
                nn.utils.clip_grad_norm_(self.model.parameters(), self.recipe.clip, foreach=True)
            self.optimizer.step()
        return loss

    def _gradients_that_fit(self, x_BCHW: Tensor, labels_B: Tensor, seed: int) -> Tensor:
        while True:
            try:
                torch.manual_seed(seed)
                self.optimizer.zero_grad(set_to_none=True)
                self.working.refresh()
                return self._gradients(x_BCHW, labels_B)
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error) or min(self.micro_batch, len(labels_B)) == 1:
                    raise
            # outside the handler the traceback, which holds the activations, is gone
            self.micro_batch = min(self.micro_batch, len(labels_B)) // 2
            self.optimizer.zero_grad(set_to_none=True)
            release(self.device)

    def _gradients(self, x_BCHW: Tensor, labels_B: Tensor) -> Tensor:
        """Accumulate the gradient of the batch's mean loss, one micro-batch after another."""
        batch = len(labels_B)
        parts = zip(x_BCHW.split(self.micro_batch), labels_B.split(self.micro_batch), strict=True)
        total = torch.zeros((), device=self.device)
        for x_bCHW, labels_b in parts:
            with label("forward"):
                loss = self.loss(self.working(x_bCHW), labels_b)
            with label("backward"):
                # each image weighs 1 / batch, whatever the size of the micro-batch it is in
                loss = loss * (len(labels_b) / batch)
                loss.backward()
                self.working.collect()
            total += loss.detach()
        return total
