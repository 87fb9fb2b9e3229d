"""One optimizer step: forward pass, loss, backward pass, clipping, update, and the average of the weights.

Pre-training, fine-tuning and the speed suite share it. The code here is what runs on a CPU; compiling and recording
replace parts of it from outside (`bench.train.acceleration`).
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional as F

from bench.core.device import generators, is_out_of_memory, release
from bench.core.errors import UserError
from bench.core.seeds import stream
from bench.cost.trace import label
from bench.study.cell import Recipe
from bench.study.registry import load
from bench.train import modes, precision
from bench.train.acceleration import accelerate
from bench.train.ranks import ONE_RANK, RankOutOfMemory, Ranks
from bench.train.update import Ema, Update
from vit.masked import Regression

Loss = Callable[[Tensor, Tensor], Tensor]
"""(logits_BK, labels_B or targets_BK) -> mean loss of the batch."""


def make_loss(recipe: Recipe, targets_SK: Tensor | None = None) -> Loss:
    """Return the loss that the recipe names (bench/train/losses/), or one for images with several labels each.

    Args:
        targets_SK: only for images that may have several classes or none: the S different sets of classes, as rows of 0
            and 1. An image's label is then the row of its set, and every class is decided on its own by a sigmoid.

    Raises:
        UserError: the recipe's augmentation mixes images, and these have several classes.
    """
    if targets_SK is None:
        made: Loss = load("loss", recipe.loss).make(recipe)
        return made
    if recipe.augmentation != "none" and load("augmentation", recipe.augmentation).mixes:
        raise UserError(
            f"{recipe.augmentation} mixes images of one class each, and these have several.",
            "Leave augmentation at none, or set one that changes single images, such as randaugment.",
        )
    smoothing = recipe.label_smoothing
    softened_SK = smoothing + (1.0 - 2 * smoothing) * targets_SK.float()

    def several(logits_BK: Tensor, sets_B: Tensor) -> Tensor:
        targets_BK = softened_SK[sets_B]
        return F.binary_cross_entropy_with_logits(logits_BK.float(), targets_BK, reduction="sum") / len(sets_B)

    return several


def set_head_bias(model: nn.Module, recipe: Recipe, num_classes: int) -> None:
    """Set the classifier's bias to −log K, for K classes, if the recipe's `head_bias` is "prior": sigmoids then begin
    near the mean frequency of a class, 1 / K.

    The ViT paper's runs had −10 for JFT's 18,291 classes and ImageNet-21k's 21,843 (−9.8 and −10.0 by this rule) and
    −6.9 for ImageNet's 1,000.

    Raises:
        UserError: the model's last parameter is not a bias over the classes.
    """
    if recipe.head_bias == "zero":
        return
    name, bias = list(model.named_parameters())[-1]
    if not name.endswith("bias") or bias.shape != (num_classes,):
        raise UserError(
            f"head_bias={recipe.head_bias} needs a model whose last parameter is the head's bias; here it is {name}.",
            "Register the head last, or leave head_bias at zero.",
        )
    nn.init.constant_(bias, -math.log(num_classes))


class TooLarge(torch.OutOfMemoryError):
    """Raised when memory is too small for even one image at a time."""


def own_loss(output: tuple[Tensor, ...], loss_of: Loss) -> Tensor:
    """Return the loss of a self-supervised network, whose output contains its targets.

    Args:
        output: what the network returned in training.
        loss_of: the recipe's loss; it is used unless the output is a `Regression`, whose loss is the mean squared
            error.

    Raises:
        UserError: the output has another form (see `own_targets`).
    """
    if isinstance(output, Regression):
        return F.mse_loss(output.predicted.float(), output.wanted)
    return loss_of(*own_targets(output))


def own_targets(output: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
    """Return (logits, class numbers) from the output of a self-supervised network, which computes its own targets.

    Raises:
        UserError: the network returned something else, such as the logits of an auxiliary head.
    """
    if len(output) != 2 or output[1].is_floating_point():
        raise UserError(
            f"In training the network returns {len(output)} tensors that are not logits and class numbers.",
            "Return the logits alone, or with the class number that each row of them is to predict.",
        )
    return output[0], output[1]


def working_weights(model: nn.Module, dtype: str, *, ranks: Ranks, apart: bool) -> precision.Working:
    """Return the network with which a training step computes (`precision.Working`), for one process or several.

    Args:
        dtype: a key of `precision.DTYPES`; a sharded model casts its weights to it by itself.
        apart: whether the network must be another object than the model, so that compiling it does not change how the
            model is evaluated.
    """
    sharded = ranks.is_sharded(model)
    if ranks.size > 1 and not sharded:
        return precision.SharedWorking(model, dtype, apart=apart, share=ranks.data_parallel)
    return precision.Working(model, "float32" if sharded else dtype, apart=apart)


def forward_and_backward(working: precision.Working, loss_of: Loss) -> Callable[..., Tensor]:
    """Return a function (x_bCHW, labels_b, weight=…) that runs forward and backward passes of a micro-batch: it leaves
    the gradients of loss × weight in `.grad`, and returns loss × weight.

    It holds no reference to the step, so keeping it does not keep the step alive.
    """

    def both_ways(x_bCHW: Tensor, labels_b: Tensor, *, weight: float) -> Tensor:
        with label("forward"):
            output = working(x_bCHW)
            loss = own_loss(output, loss_of) if isinstance(output, tuple) else loss_of(output, labels_b)
        with label("backward"):
            loss = loss * weight
            loss.backward()
        return loss.detach()

    return both_ways


class Step:
    """A training step: forward, loss, backward, clipping and update for one batch.

    If memory runs out, the micro-batch is halved and the step repeated: no weight has changed before all gradients are
    there. `micro_batch` is then the size that fitted, also for the following steps. With several ranks training ends
    instead, with an error that names a smaller micro-batch, because the other ranks wait in the middle of a pass.

    Args:
        model: a model on `device`, in training mode.
        recipe: optimizer, precision, loss, clipping, and the first micro-batch: the number of images that pass through
            the network at once. Gradients add up to those of the whole batch, within rounding; but dropout masks depend
            on the micro-batch, as would statistics over a batch.
        average: the moving average of the weights, which is updated after each step; None without one.
        targets_SK: see `make_loss`.
        ranks: the processes that share each batch. Dropout is seeded by the micro-batch's place in the global batch, so
            its masks do not depend on the number of ranks if `micro_batch` divides every rank's part.
    """

    def __init__(
        self,
        *,
        model: nn.Module,
        recipe: Recipe,
        device: str,
        ranks: Ranks = ONE_RANK,
        average: Ema | None = None,
        targets_SK: Tensor | None = None,
    ) -> None:
        self.model, self.recipe, self.device, self.ranks = model, recipe, device, ranks
        self.weights, self._generators = list(model.parameters()), generators(device)
        self.micro_batch = recipe.micro_batch or recipe.batch
        self.dtype: str = precision.resolve(recipe.dtype, device, model)
        sharded = ranks.is_sharded(model)
        mode = "off" if sharded else modes.mode_for(device)
        self.working = working_weights(model, self.dtype, ranks=ranks, apart=mode != "off")
        self.both_ways = forward_and_backward(self.working, make_loss(recipe, targets_SK))
        self.rule = Update(
            self.weights, recipe=recipe, dtype=self.dtype, device=device, average=average, sharded=sharded
        )
        self.update: Callable[[], None] = self.rule
        self.optimizer = self.rule.optimizer
        self.exchanging = self.working.shared if isinstance(self.working, precision.SharedWorking) else model
        self.run_as = accelerate(self, mode, ranks=ranks.size)

    @property
    def compiles(self) -> bool:
        return self.run_as.compiles

    def __call__(self, x_BCHW: Tensor, labels_B: Tensor, *, lr: float, seed: int) -> Tensor:
        """Update the model once, at learning rate `lr`; `seed` seeds dropout. Each rank passes its part of the batch.

        Returns:
            The mean loss over the global batch, detached and on the device, so that only reading it waits for the
            device.

        Raises:
            TooLarge: not even one image at a time fits into memory.
            RankOutOfMemory: memory ran out on this rank, one of several.
        """
        self.rule.set_rate(lr)
        has_state = bool(self.optimizer.state)
        while True:
            try:
                loss = self.gradients_that_fit(x_BCHW, labels_B, seed)
                with label("optimizer"):
                    self.update()
                return loss
            except (RuntimeError, MemoryError) as error:
                images = min(self.micro_batch, len(labels_B))
                if images == 1 or isinstance(error, TooLarge) or not self._lacks_memory(error, images):
                    raise
            # This is outside the handler, so that the traceback, which holds memory, is gone. The optimizer allocates
            # before it changes anything, so no weight has changed; but a parameter may have half of its new state.
            if not has_state:
                self.rule.state.clear()
            self.go_on_with(images // 2)

    def _lacks_memory(self, error: Exception, images: int) -> bool:
        """Return whether an error says that memory ran out.

        Args:
            images: number of images that passed through the network at once when it was raised.

        Raises:
            RankOutOfMemory: memory ran out, and this is one of several ranks.
        """
        if isinstance(error, dist.DistError) or not is_out_of_memory(error):
            return False
        if self.ranks.size > 1:
            raise RankOutOfMemory(images) from error
        return True

    def gradients_that_fit(self, x_BCHW: Tensor, labels_B: Tensor, seed: int) -> Tensor:
        """Compute the gradients of the global batch into the weights' `.grad`, with a smaller micro-batch if memory
        runs out; return the mean loss of the batch.

        Args:
            x_BCHW, labels_B: this rank's part of the batch.
            seed: seed of dropout.

        Raises:
            TooLarge: not even one image at a time fits into memory.
            RankOutOfMemory: memory ran out, and this is one of several ranks.
        """
        while True:
            try:
                self.clear()
                loss = self.gradients(x_BCHW, labels_B, seed)
                return loss if self.ranks.size == 1 else self.ranks.mean(loss)
            except (RuntimeError, MemoryError) as error:
                images = min(self.micro_batch, len(labels_B))
                if not self._lacks_memory(error, images):
                    raise
                reason = str(error) or "out of memory"
            # outside the handler, so that the traceback, which holds the activations, is gone
            if images == 1:
                raise TooLarge(reason)
            self.go_on_with(images // 2)

    def clear(self) -> None:
        """Drop the gradients of all weights."""
        for weight in self.weights:
            weight.grad = None

    def go_on_with(self, micro_batch: int) -> None:
        """Free what memory can be freed after it ran out, and let `micro_batch` images at a time pass through the
        network from now on."""
        self.clear()
        self.micro_batch = micro_batch
        self.working.sums.clear()
        self.run_as.forget()
        release(self.device)

    def gradients(self, x_BCHW: Tensor, labels_B: Tensor, seed: int, *, exchange: bool = True) -> Tensor:
        """Accumulate the gradient of the mean loss of this rank's part of the batch over its micro-batches, and return
        that loss.

        Args:
            seed: seed of dropout.
            exchange: whether ranks average their gradients, during the backward pass of the last micro-batch.
        """
        batch = len(labels_B)
        parts = list(zip(x_BCHW.split(self.micro_batch), labels_B.split(self.micro_batch), strict=True))
        total: Tensor | None = None
        self.working.refresh()
        for index, (x_bCHW, labels_b) in enumerate(parts):
            last = index == len(parts) - 1
            place = self.ranks.rank * len(parts) + index  # the micro-batch's place in the global batch
            for generator in self._generators:
                generator.manual_seed(stream(seed, "micro-batch", place) if place else seed)
            if self.ranks.size > 1:
                self.ranks.set_gradient_sync(self.exchanging, last=exchange and last)
            # each image weighs 1 / batch, whatever the size of the micro-batch it is in
            loss = self.both_ways(x_bCHW, labels_b, weight=len(labels_b) / batch)
            total = loss.clone() if total is None else total.add_(loss)
            with label("backward"):
                self.working.collect(last=last)
        assert total is not None
        return total
