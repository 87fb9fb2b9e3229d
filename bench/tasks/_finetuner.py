"""Fine-tune a copy of a trained model, with a new classifier whose weights are zero, by the training loop of
pre-training.

Shapes: N images, H W C height, width and channels, K classes.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import nn

from bench.core.device import InBatches, uploaded
from bench.core.errors import UserError
from bench.core.seeds import stream
from bench.cost import flops
from bench.data.image_set import EncodedImages, Images, ImageSet
from bench.study import registry
from bench.study.cell import Recipe
from bench.tasks._features import network_input
from bench.tasks.task import FineTuned
from bench.train import inference
from bench.train.batches import Batches
from bench.train.events import Stepped
from bench.train.trainer import Diverged, Trainer
from vit.resize import carry_over


def transferred_model(
    model: nn.Module, name: str, *, image_size: int, channels: int, num_classes: int, **options: Any
) -> nn.Module:
    """Return a model for another image size and other classes, with the trained weights of `model` except those of the
    classifier, which are zero.

    Args:
        model: the trained module.
        name, options: arguments of `registry.build_model`, which builds the new model.

    Raises:
        UserError: the model cannot take this size, or its weights depend on the size.
    """
    if getattr(getattr(model, "config", None), "head", "linear") != "linear":
        options["head"] = "linear"  # hidden layers of the head belong to the old task and are dropped
    fresh: Any = registry.build_model(
        name, image_size=image_size, channels=channels, num_classes=num_classes, **options
    )
    try:
        if hasattr(fresh, "take_over"):
            fresh.take_over(model)
            return fresh
        return carry_over(model, fresh)
    except ValueError as error:
        raise UserError(f"Model {name!r} cannot be fine-tuned at {image_size} px: {error}.") from error


def _by_sets(images: ImageSet, device: str) -> tuple[ImageSet, torch.Tensor | None]:
    """For images with several labels each, return (the images with the number of their set of labels as their single
    label, the S different sets as rows of 0 and 1, (S, K)). Return other images as they are, with None."""
    if not images.several:
        return images, None
    sets_SK, numbers_N = np.unique(images.targets_NK, axis=0, return_inverse=True)
    names = tuple(f"set {number}" for number in range(len(sets_SK)))
    labels_N = numbers_N.reshape(-1).astype(np.int64)
    plain = replace(images, labels_N=labels_N, class_names=names, multi_labels=None, several=False)
    return plain, torch.from_numpy(sets_SK).to(device)


class FineTuner:
    """Fine-tunes copies of one trained model; the model itself is never changed.

    Args:
        model: the trained module.
        name, options: arguments of `registry.build_model` that the model was built with.
        image_size, channels: the model's input; each call may request another size.
        seed: seed of the training run (cell) that trained the model.
        should_stop: called between steps; if it returns True, `Interrupted` is raised.
        batches: remembers how many images fit into memory at a time in eval mode; None for a new one.
        dtype: precision in which logits are computed; see `bench.train.inference`.

    Attributes:
        micro_batch: the number of images that went through the network at once after memory ran out in training; None
            if it never did.
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
        dtype: str = "auto",
    ) -> None:
        self.model, self.name, self.options = model, name, options
        self.image_size, self.channels = image_size, channels
        self.device, self.seed, self.should_stop = device, seed, should_stop
        self.batches, self.dtype = batches or InBatches(device=device), dtype

    def __call__(
        self, images: ImageSet, *, recipe: Recipe, steps: int, image_size: int | None = None, purpose: str = ""
    ) -> FineTuned:
        """Train a copy of the model on all of `images`, and return it. Order, augmentation and dropout depend on (seed,
        purpose).

        Args:
            recipe: optimizer, learning rate, batch, …
            steps: number of optimizer steps.
            image_size: pixels per side; None for the model's own. Stored images are resized with anti-aliasing; encoded
                ones are decoded at this size.
            purpose: text that distinguishes the random numbers of this training from those of others.

        Raises:
            Interrupted: `should_stop` returned True.
            UserError: the model cannot take this size.
        """
        started = time.perf_counter()
        size = image_size or self.image_size
        sizes: dict[str, Any] = {"image_size": size, "channels": self.channels, "num_classes": images.num_classes}
        model = transferred_model(self.model, self.name, **sizes, **dict(self.options)).to(self.device)
        seed, streams = stream(self.seed, "fine-tune", purpose), ("fine-tune", purpose)
        images, targets_SK = _by_sets(images, self.device)
        batches = Batches(images, recipe=recipe, seed=seed, device=self.device, fit=(size, self.channels))
        losses: list[torch.Tensor] = []
        trainer = Trainer(
            model=model,
            batches=batches,
            recipe=recipe,
            horizons=(steps * recipe.batch,),
            seed=self.seed,
            device=self.device,
            should_stop=self.should_stop,
            purpose=streams,
            targets_SK=targets_SK,
        )
        diverged = False
        try:
            for event in trainer.run():
                if isinstance(event, Stepped):
                    losses.append(event.loss)
        except Diverged:
            diverged = True
        assert trainer.train_step is not None
        if trainer.train_step.micro_batch < (recipe.micro_batch or recipe.batch):
            self.micro_batch = min(trainer.train_step.micro_batch, self.micro_batch or recipe.batch)
        if trainer.ema.mean:
            model.load_state_dict(trainer.ema.mean, strict=False)  # for good, as the model is never trained again
        per_image = flops.count(self.name, **sizes, model_options=self.options, activations=False).train_flops_per_image
        trained = len(losses) * recipe.batch
        return FineTuned(
            logits=lambda images_NHWC: self._logits(model, images_NHWC, image_size=size),
            losses_T=torch.stack(losses).float().cpu().numpy(),
            diverged=diverged,
            image_size=size,
            seconds=time.perf_counter() - started,
            train_flops={convention: each * trained for convention, each in per_image.items()},
        )

    def _logits(self, model: nn.Module, images_NHWC: Images, *, image_size: int) -> np.ndarray:
        """Return the float32 logits_NK of a fine-tuned model, in eval mode; no image is dropped from a smaller last
        batch.

        Args:
            image_size: pixels per side of the model's input.
        """
        if isinstance(images_NHWC, EncodedImages):
            images_NHWC = images_NHWC.at(image_size)

        def of(part: slice) -> torch.Tensor:
            x_BHWC = uploaded(images_NHWC[part], self.device)
            return network(network_input(x_BHWC, image_size=image_size, channels=self.channels)).float()

        dtype = inference.resolve(self.dtype, self.device, model)
        network = inference.in_precision(model.eval(), dtype=dtype, device=self.device, batches=self.batches)
        with torch.inference_mode():
            return torch.cat([part.cpu() for part in self.batches(len(images_NHWC), of)]).numpy()
