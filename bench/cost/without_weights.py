"""Inspect a model without allocating or computing anything: on the meta device, where only shapes exist.

A network that reads the values of tensors while it is built or run fails there. Such a network is run on the CPU
instead, with few images, which gives the same answer.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import torch
from torch import nn

from baselines._caches import forget_meta
from bench.core.device import meta
from bench.core.errors import UserError
from bench.study import registry

T = TypeVar("T")
Images = Callable[[int], torch.Tensor]  # number -> so many images of the model's size, on the model's device
Look = Callable[[nn.Module, Images], T]


def looked_at(name: str, look: Look[T], *, channels: int, **sizes: Any) -> T:
    """Build a model, put it into eval mode, and return what the function `look` finds out about it.

    This is done on the meta device. If that fails for a model from outside the project, it is repeated on the CPU.

    Args:
        name: the model's name.
        look: (model, function that makes a number of images for it) -> result.
        channels: channels of the images.
        sizes: the other arguments of `bench.study.registry.build_model`, such as `image_size`.

    Raises:
        UserError: the model cannot be built. Errors of `look` are passed on.
    """
    try:
        return _look(name, look, on_meta=True, channels=channels, **sizes)
    except (UserError, RuntimeError, TypeError, ValueError, AttributeError, IndexError):
        if not _is_strange(name):
            raise
    return _look(name, look, on_meta=False, channels=channels, **sizes)


def built(name: str, **sizes: Any) -> nn.Module:
    """Return a model whose weights are not needed, built on the meta device, or on the CPU if it cannot be built there.
    `sizes` are further arguments of `bench.study.registry.build_model`."""
    try:
        with _shapes_only():
            return registry.build_model(name, **sizes)
    except UserError:
        if not _is_strange(name):
            raise
    with torch.random.fork_rng(devices=[]):
        return registry.build_model(name, **sizes)


def _look(name: str, look: Look[T], *, on_meta: bool, channels: int, **sizes: Any) -> T:
    with torch.random.fork_rng(devices=[]):
        with _shapes_only() if on_meta else contextlib.nullcontext():
            model = registry.build_model(name, channels=channels, **sizes).eval()
        size = getattr(model, "image_size", sizes["image_size"])
        height, width = (size, size) if isinstance(size, int) else size
        device = "meta" if on_meta else "cpu"
        try:
            return look(model, lambda batch: torch.zeros(batch, channels, height, width, device=device))
        finally:
            if on_meta and _is_strange(name):
                forget_meta()


@contextlib.contextmanager
def _shapes_only() -> Iterator[None]:
    with torch.random.fork_rng(devices=[]), meta():
        yield


def _is_strange(name: str) -> bool:
    """Return whether the model of a name comes from outside the project. The project's own models always run on the
    meta device, and cache no tensors."""
    family = registry.family_of(name)
    return family.from_outside or not family.module.startswith(("vit.", "baselines."))
