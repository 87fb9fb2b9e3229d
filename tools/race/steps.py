"""A contender's training step with given settings: the model from each library, in the loop that everybody writes."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bench.core.device import OutOfMemory
from bench.data.image_set import ImageSet
from bench.data.load import load
from bench.study import registry
from bench.study.cell import Cell, Recipe, cell_from_json
from bench.study.record import PeerSettings
from bench.tasks._features import network_input
from bench.train import precision
from bench.train.batches import Batches
from bench.train.rehearsal import rehearse
from bench.train.step import Step
from tools.race import builders
from tools.race.contenders import Competitor
from tools.race.settings import first

HEAD_STD = 0.02  # of the head's initial weights: the paper's zeros would hide the body from the first step
FORMATS = {
    "contiguous": (torch.contiguous_format, torch.contiguous_format),
    "channels_last": (torch.channels_last, torch.channels_last),
    "channels_last images": (torch.channels_last, torch.contiguous_format),
}
"""Layout -> in which images and 4-dimensional weights lie in memory."""

StepOnce = Callable[[int], Tensor]
"""Number of the step -> its loss."""
Loader = Callable[[int], tuple[Tensor, Tensor]]
"""Number of the step -> (x_BCHW, labels_B)."""


def resident(cell: Cell, root: Path | None = None) -> ImageSet:
    """The cell's images at the model's size, in memory as uint8: no contender decodes or resizes while it is timed."""
    images = load(cell.data, "train", root=root, num_images=cell.num_images)
    sizes = {"image_size": cell.image_size, "channels": cell.channels}
    x_NCHW = network_input(torch.from_numpy(np.array(images.images_NHWC[:])), **sizes)
    pixels_NHWC = x_NCHW.add_(1.0).mul_(127.5).round_().clamp_(0, 255).to(torch.uint8).permute(0, 2, 3, 1)
    return ImageSet(
        name=images.name,
        split=images.split,
        images_NHWC=pixels_NHWC.contiguous().numpy(),
        labels_N=images.labels_N,
        class_names=images.class_names,
        kind=images.kind,
    )


def network(cell: Cell, num_classes: int) -> nn.Module:
    """Our model with the weights that every contender starts from."""
    torch.manual_seed(cell.seed)
    sizes: dict[str, Any] = {"image_size": cell.image_size, "channels": cell.channels, "num_classes": num_classes}
    model = registry.build_model(cell.model, **sizes, **dict(cell.model_options))
    head = [p for name, p in model.named_parameters() if name.startswith("head.") and name.endswith("weight")]
    for weight in head:
        nn.init.normal_(weight, std=HEAD_STD)
    return model


class Course:
    """The images that a contender trains on, and its steps.

    Args:
        task: "cell", "contender", "device" and "data_root", as `bench.execute.jobs.peers` sends them.
    """

    def __init__(self, task: dict[str, Any]) -> None:
        self.cell, self.contender, self.device = (
            cell_from_json(task["cell"]),
            Competitor(**task["contender"]),
            task["device"],
        )
        self.images = resident(self.cell, Path(task["data_root"]) if task["data_root"] else None)
        self.bfloat16 = self.device != "cpu" or precision.multiplies_bfloat16()

    def first_settings(self, *, tuned: bool) -> PeerSettings:
        """The settings that `settings.first` describes."""
        package, own_dtype = self.contender.package, ""
        if package is None:
            ours = network(self.cell, self.images.num_classes)
            own_dtype = precision.resolve(self.cell.recipe.dtype, self.device, ours)
        return first(package, tuned=tuned, device=self.device, bfloat16=self.bfloat16, own_dtype=own_dtype)

    def batches(self, layout: str) -> Loader:
        """Batches whose images lie in memory as `layout` says, made without a copy where that can be."""
        images = FORMATS[layout][0]
        batches = Batches(
            self.images,
            recipe=self.cell.recipe,
            seed=self.cell.seed,
            device=self.device,
            scaled=True if self.contender.package else None,  # only our step takes pixels
            fit=(self.cell.image_size, self.cell.channels) if images == torch.contiguous_format else None,
        )

        def batch(number: int) -> tuple[Tensor, Tensor]:
            x_BCHW, labels_B = batches(number)
            x_BCHW = x_BCHW.contiguous(memory_format=images)
            if number == 0:
                expect_layout([x_BCHW], images)
            return x_BCHW, labels_B

        return batch

    def step(self, settings: PeerSettings) -> tuple[StepOnce, dict[str, Any]]:
        """The step of these settings, and what is known about it before it runs.

        Raises:
            NoCounterpart: the library has no such model, or nothing in it that could be compiled.
        """
        ours, contender = network(self.cell, self.images.num_classes), self.contender
        facts = {"same_function": True, "dtype": settings.dtype, "settings": dataclasses.asdict(settings)}
        model = ours
        if contender.package is not None:
            model, facts["same_function"] = builders.build(
                contender.package,
                ours,
                name=self.cell.model,
                image_size=self.cell.image_size,
                num_classes=self.images.num_classes,
                attention=settings.attention,
            )
        facts["params"] = sum(p.numel() for p in model.parameters())
        model = model.to(self.device).train().to(memory_format=FORMATS[settings.layout][1])
        expect_layout(model.parameters(), FORMATS[settings.layout][1])
        batches = self.batches(settings.layout)
        if contender.package is None:
            recipe = dataclasses.replace(self.cell.recipe, dtype=settings.dtype)
            return own_step(model, recipe, batches, self.device), facts
        return plain_step(model, self.cell.recipe, batches, self.device, contender.package, settings), facts


def expect_layout(tensors: Iterable[Tensor], wanted: torch.memory_format) -> None:
    """Raise AssertionError where images or weights of convolutions lie in memory otherwise than settings say."""
    for tensor in tensors:
        if tensor.dim() == 4 and not tensor.is_contiguous(memory_format=wanted):
            raise AssertionError(f"shape {tuple(tensor.shape)}, strides {tensor.stride()}: not {wanted}")


def own_step(model: nn.Module, recipe: Recipe, batches: Loader, device: str) -> StepOnce:
    """This project's step."""
    step = Step(model=model, recipe=recipe, device=device)
    if step.compiles:
        rehearse(step, *batches(0))

    def once(number: int) -> Tensor:
        loss = step(*batches(number), lr=recipe.lr, seed=number)
        if step.micro_batch < recipe.batch:  # the others' batches are not done in parts
            raise OutOfMemory
        return loss

    return once


def plain_step(
    model: nn.Module, recipe: Recipe, batches: Loader, device: str, package: str, settings: PeerSettings
) -> StepOnce:
    """The loop that everybody writes: zero_grad, forward, backward, clip, step."""
    implementation = {} if settings.optimizer == "default" else {settings.optimizer: True}
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=recipe.lr, betas=recipe.betas, weight_decay=recipe.weight_decay, **implementation
    )
    foreach = True if implementation else None
    forward = with_compile(model, settings.compiled, device)
    own_choice = package != "torchvision" or settings.attention == "fused"  # the others choose when they are built
    bfloat16 = settings.dtype == "bfloat16"

    def once(number: int) -> Tensor:
        x_BCHW, labels_B = batches(number)
        optimizer.zero_grad(set_to_none=True)
        kernels = contextlib.nullcontext() if own_choice else nn.attention.sdpa_kernel(nn.attention.SDPBackend.MATH)
        with kernels, torch.autocast(device.partition(":")[0], dtype=torch.bfloat16, enabled=bfloat16):
            loss = F.cross_entropy(forward(x_BCHW), labels_B)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), recipe.clip, foreach=foreach)
        optimizer.step()
        return loss.detach()

    return once


def with_compile(model: nn.Module, how: str, device: str) -> Callable[[Tensor], Tensor]:
    """The model with what `how` says compiled.

    Raises:
        NoCounterpart: "blocks" of a model that has no Transformer blocks.
    """
    if how == "whole":
        return torch.compile(model, mode="default" if device == "cpu" else "max-autotune")
    if how == "blocks":
        for block in builders.transformer_blocks(model):
            block.compile()
    return model
