"""Fine-tuning: a copy of a trained model, a classifier of zeros, and the training step of everything else here.

Shapes: B images in a batch, H W C height, width and channels, N images, K classes, T steps.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn

from bench.core import registry
from bench.core.device import InBatches
from bench.core.errors import Interrupted
from bench.core.seeds import stream
from bench.core.spec import Recipe
from bench.cost import flops
from bench.data.image_set import ImageSet
from bench.tasks._contract import FineTuned
from bench.tasks._features import fit_input, to_input
from bench.train import precision, schedule
from bench.train.average import Average
from bench.train.batches import Batches
from bench.train.optim import make_optimizer
from bench.train.step import Step

CHECK_EVERY = 50  # steps between looks at the loss: each look waits for the device


class FineTuner:
    """Fine-tunes copies of one trained model; the model itself is never changed.

    Args:
        model: the trained module. name, options: what `registry.build_model` made it from.
        image_size, channels: what it takes; another size may be asked for in each call.
        seed: of the cell. should_stop: looked at between steps; True ends everything with `Interrupted`.
        batches: keeps how many images fit at a time in test mode; None for its own.

    Where memory ran out in training, `micro_batch` is what then went through the network at once.
    """

    micro_batch: int | None = None

    def __init__(
        self,
        model: nn.Module,
        *,
        name: str,
        image_size: int,
        channels: int,
        options: tuple[tuple[str, Any], ...] = (),
        device: str = "cpu",
        seed: int = 0,
        should_stop: Callable[[], bool] = lambda: False,
        batches: InBatches | None = None,
    ) -> None:
        self.model, self.name, self.options = model, name, options
        self.image_size, self.channels = image_size, channels
        self.device, self.seed, self.should_stop = device, seed, should_stop
        self.batches = batches or InBatches(device=device)

    def __call__(
        self, images: ImageSet, *, recipe: Recipe, steps: int, image_size: int | None = None, purpose: str = ""
    ) -> FineTuned:
        """Train on all of `images` for a number of steps; order, augmentation and dropout follow (seed, purpose).

        Args:
            image_size: None for the model's own. Images are resized from the size they are stored at, anti-aliased.

        Raises:
            Interrupted: `should_stop` said so. UserError: the model cannot take this size.
        """
        started = time.perf_counter()
        sizes: dict[str, Any] = {
            "image_size": image_size or self.image_size, "channels": self.channels, "num_classes": images.num_classes,
        }  # fmt: skip
        model = registry.transferred_model(self.model, self.name, **sizes, **dict(self.options)).to(self.device)
        losses, finite = self._train(model, images, recipe=recipe, steps=steps, purpose=purpose, sizes=sizes)
        per_image = flops.count(self.name, **sizes, model_options=self.options, activations=False).train_flops_per_image
        done = len(losses) * recipe.batch
        return FineTuned(
            logits=lambda images_NHWC: self._logits(model, images_NHWC, recipe=recipe, sizes=sizes),
            losses_T=losses,
            diverged=not finite,
            image_size=sizes["image_size"],
            seconds=time.perf_counter() - started,
            train_flops={convention: each * done for convention, each in per_image.items()},
        )

    def _train(
        self, model: nn.Module, images: ImageSet, *, recipe: Recipe, steps: int, purpose: str, sizes: dict[str, Any]
    ) -> tuple[np.ndarray, bool]:
        """(the loss of every step done, whether all were finite, and the weights after the last one's update)."""
        horizon = (steps * recipe.batch,)
        segments, warmup = schedule.segments(recipe, horizon), schedule.warmup_steps(recipe, horizon)
        batches = Batches(images, recipe=recipe, seed=stream(self.seed, "fine-tune", purpose), device=self.device)
        step = Step(model=model, optimizer=make_optimizer(model, recipe), recipe=recipe, device=self.device)
        average = Average(model, recipe.average)
        size, channels = sizes["image_size"], sizes["channels"]
        losses: list[torch.Tensor] = []
        model.train()
        for number in range(steps):
            if self.should_stop():
                raise Interrupted(f"fine-tuning stopped at step {number} of {steps}; it starts anew")
            x_BCHW, labels_B = batches(number)
            segment = next(part for part in segments if part.start <= number < part.end)
            rate = schedule.learning_rate(recipe, step=number, warmup=warmup, segment=segment)
            seed = stream(self.seed, "fine-tune", purpose, "dropout", number)
            losses.append(step(fit_input(x_BCHW, image_size=size, channels=channels), labels_B, lr=rate, seed=seed))
            average.update()
            if (number + 1) % CHECK_EVERY == 0 and not math.isfinite(losses[-1].item()):
                break
        if step.micro_batch < (recipe.micro_batch or recipe.batch):
            self.micro_batch = min(step.micro_batch, self.micro_batch or recipe.batch)
        if average.mean:
            model.load_state_dict(average.mean, strict=False)  # it is never trained again: the mean may take its place
        losses_T = torch.stack(losses).float().cpu().numpy()
        weights = torch.stack([parameter.detach().isfinite().all() for parameter in model.parameters()])
        return losses_T, bool(np.isfinite(losses_T).all() and weights.all())

    def _logits(
        self, model: nn.Module, images_NHWC: np.ndarray, *, recipe: Recipe, sizes: dict[str, Any]
    ) -> np.ndarray:
        """float32 logits_NK, in test mode; a last, smaller batch is computed like any other."""

        def of(part: slice) -> torch.Tensor:
            x_BHWC = torch.from_numpy(np.array(images_NHWC[part])).to(self.device)
            x_BCHW = to_input(x_BHWC, image_size=sizes["image_size"], channels=sizes["channels"])
            return model(x_BCHW).float().cpu()

        dtype = precision.resolve(recipe.dtype, self.device)
        model.eval()
        with torch.inference_mode(), precision.autocast(dtype, self.device):
            return torch.cat(self.batches(len(images_NHWC), of)).numpy()
