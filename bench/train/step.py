"""One optimizer step: what trains, what fine-tunes and what the speed suite times."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bench.cost.profile import label
from bench.spec import Recipe
from bench.train import precision


class Step:
    """Forward, loss, backward, clipping and update of one batch. Keeps no state of its own.

    Args:
        model: on `device`, in training mode.
        optimizer: of the model's parameters; its rate is set by every call.
        recipe: precision, loss and clipping.
        micro_batch: images that pass through the network at once; None means the whole batch.
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
        self.micro_batch = micro_batch
        self.dtype = precision.resolve(recipe.dtype, device)

    def __call__(self, x_BCHW: Tensor, labels_B: Tensor, *, lr: float, seed: int) -> Tensor:
        """Update the model once, at rate `lr`; dropout draws from `seed`.

        Returns:
            The mean loss over the batch, detached and on the device: reading it is what waits for the device.
        """
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        torch.manual_seed(seed)
        self.optimizer.zero_grad(set_to_none=True)
        loss = self._gradients(x_BCHW, labels_B)
        with label("optimizer"):
            if self.recipe.clip:
                nn.utils.clip_grad_norm_(self.model.parameters(), self.recipe.clip, foreach=True)
            self.optimizer.step()
        return loss

    def _gradients(self, x_BCHW: Tensor, labels_B: Tensor) -> Tensor:
        """Accumulate the gradient of the batch's mean loss, one micro-batch after another."""
        batch = len(labels_B)
        micro = self.micro_batch or batch
        total = torch.zeros((), device=self.device)
        for x_bCHW, labels_b in zip(x_BCHW.split(micro), labels_B.split(micro), strict=True):
            with label("forward"), precision.autocast(self.dtype, self.device):
                logits_bK = self.model(x_bCHW)
                loss = F.cross_entropy(logits_bK.float(), labels_b, label_smoothing=self.recipe.label_smoothing)
            with label("backward"):
                # each image weighs 1 / batch, whatever the size of the micro-batch it is in
                loss = loss * (len(labels_b) / batch)
                loss.backward()
            total += loss.detach()
        return total
