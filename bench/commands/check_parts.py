"""Requirements of the parts of a recipe: optimizers, losses, augmentations and schedules."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from bench.commands.requirement import CheckOptions, Limited, Requirement, require, require_revision
from bench.study import registry
from bench.study.cell import Recipe
from bench.train.parts import check_part

if TYPE_CHECKING:
    from torch import Tensor

CLASSES, BATCH, WIDTH = 5, 8, 12  # size of the toy problem on which a part is tried
FEW_NAMES = 3  # how many names are tried of a file that stands for many parts


def _tried(kind: str, name: str) -> list[Recipe]:
    """Return recipes on which a part is tried: one recipe that uses it or, if its file stands for several parts (such
    as a library's optimizers), one for each of the first `FEW_NAMES` of them. `kind`: "optimizer", "loss",
    "augmentation" or "schedule"."""
    part = registry.load(kind, name)
    offered = () if part.names is None or ":" in name else part.names()[:FEW_NAMES]
    names = [f"{name}:{each}" for each in offered] or [name]
    made = Recipe(batch=BATCH, warmup_images=0)
    named: list[dict[str, Any]] = [{kind: each} for each in names]
    return [replace(made, **each) for each in named]


def _described(kind: str, name: str) -> Requirement:
    def check() -> str:
        require_revision(registry.load(kind, name).revision)
        for recipe in _tried(kind, name):
            check_part(kind, getattr(recipe, kind))
        return ""

    return Requirement(what="has a revision and names that exist", check=check, is_gate=True)


def check_optimizer(name: str, options: CheckOptions) -> Iterable[Requirement]:
    """Return the requirements of an optimizer: it changes weights, and resumes exactly from a checkpoint."""

    def steps() -> str:
        import torch
        from torch import nn

        from bench.train.update import Update

        def step(update: Update, number: int) -> None:
            for index, weight in enumerate(update.weights):
                drawn = torch.Generator().manual_seed(100 * number + index)
                weight.grad = torch.randn(weight.shape, generator=drawn)
            update()

        for recipe in _tried("optimizer", name):
            weights = [nn.Parameter(torch.ones(4, WIDTH)), nn.Parameter(torch.ones(WIDTH))]
            first = Update(weights, recipe=recipe, dtype="float32", device="cpu")
            for number in range(3):
                step(first, number)
            require(not any(bool((w == 1).all()) for w in weights), f"{recipe.optimizer} leaves a weight as it was")
            held = first.state.tensors((str(index), weight) for index, weight in enumerate(weights))
            held = {key: value.clone() for key, value in held.items()}
            copies = [nn.Parameter(weight.detach().clone()) for weight in weights]
            second = Update(copies, recipe=recipe, dtype="float32", device="cpu")
            second.state.restore(held, {str(index): copy for index, copy in enumerate(copies)})
            step(first, 3)
            step(second, 3)
            same = all(map(torch.equal, weights, copies))
            require(same, f"{recipe.optimizer} goes on otherwise than it would have")
        return ""

    return (_described("optimizer", name), Requirement(what="goes on from a checkpoint as it was", check=steps))


def check_loss(name: str, options: CheckOptions) -> Iterable[Requirement]:
    """Return the requirements of a loss: it is a mean over the batch, and has the same value for targets given as class
    numbers and as one-hot vectors."""

    def is_mean() -> str:
        import torch

        logits_BK = torch.randn(BATCH, CLASSES, generator=torch.Generator().manual_seed(0))
        labels_B = torch.arange(BATCH) % CLASSES
        for recipe in _tried("loss", name):
            loss: Callable[[Tensor, Tensor], Tensor] = registry.load("loss", name).make(recipe)
            whole, twice = loss(logits_BK, labels_B), loss(logits_BK.repeat(2, 1), labels_B.repeat(2))
            require(whole.dim() == 0 and bool(whole.isfinite()), f"{recipe.loss} gives no number")
            require(torch.allclose(whole, twice), f"{recipe.loss} is no mean: it grows with the batch")
            shares_BK = torch.nn.functional.one_hot(labels_B, CLASSES).float()
            require(torch.allclose(loss(logits_BK, shares_BK), whole), f"{recipe.loss} takes shares for something else")
        return ""

    return (_described("loss", name), Requirement(what="is a mean, of class numbers and of shares", check=is_mean))


def check_augmentation(name: str, options: CheckOptions) -> Iterable[Requirement]:
    """Return the requirements of an augmentation: equal random numbers give equal images, images keep shape and type,
    and the mixed shares of classes add up to 1."""

    def repeats() -> str:
        import numpy as np
        import torch

        from bench.train.augmentations.augmentation import Augmentation, random_stream

        part: Augmentation = registry.load("augmentation", name)
        if part.pixels is None and part.mixes is None:
            raise Limited("it changes nothing")
        for recipe in _tried("augmentation", name):
            image_HWC = np.random.default_rng(0).integers(0, 256, (28, 28, options.channels), dtype=np.uint8)
            x_BCHW = torch.linspace(-1, 1, BATCH * 28 * 28).reshape(BATCH, 1, 28, 28)
            labels_B = torch.arange(BATCH) % CLASSES
            made = []
            for _ in range(2):
                with random_stream(1, "check"):
                    changed = part.pixels(recipe, image_HWC.copy()) if part.pixels else image_HWC
                    mixed = part.mixes(recipe, x_BCHW.clone(), labels_B, CLASSES) if part.mixes else None
                made.append((changed, mixed))
            (changed, mixed), (again, mixed_again) = made
            require(changed.shape == image_HWC.shape and changed.dtype == np.uint8, "pixels are no image of its size")
            require(np.array_equal(changed, again), "the same random numbers give other pixels")
            if mixed is not None and mixed_again is not None:
                require(all(map(torch.equal, mixed, mixed_again)), "the same random numbers give other mixtures")
                sums_B = mixed[1].sum(1)
                require(torch.allclose(sums_B, torch.ones_like(sums_B)), "the shares of an image do not add up to 1")
        return ""

    return (_described("augmentation", name), Requirement(what="the same from the same stream", check=repeats))


def check_schedule(name: str, options: CheckOptions) -> Iterable[Requirement]:
    """Return the requirements of a schedule: at each step, it gives a learning rate from 0 to 10 times the recipe's."""

    def rates() -> str:
        from bench.train.schedule import learning_rate, segments, warmup_steps

        for recipe in _tried("schedule", name):
            for segment in segments(recipe, (80, 800)):
                for step in range(segment.start, segment.end):
                    rate = learning_rate(recipe, step=step, warmup=warmup_steps(recipe), segment=segment)
                    require(0 <= rate <= 10 * recipe.lr, f"{recipe.schedule} gives a rate of {rate} at step {step}")
        return ""

    return (_described("schedule", name), Requirement(what="a rate for each step", check=rates))
