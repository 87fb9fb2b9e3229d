"""Peak memory of inference and of a training step, from shapes: every tensor that is alive at once, on the meta device.

What a real device needs besides (workspaces of its kernels, its own context, fragmentation) is not in it.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from bench.cost.activations import AssumeFused

OPTIMIZER_BYTES = 8  # AdamW keeps two float32 moments per parameter


class LiveBytes(TorchDispatchMode):
    """Follows the bytes of all tensors made under it until they are freed. `peak` is the most that lived at once."""

    def __init__(self) -> None:
        super().__init__()
        self.live = 0
        self.peak = 0
        self._seen: set[int] = set()

    def __torch_dispatch__(self, function: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        known = {t.untyped_storage()._cdata for t in tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)}
        for tensor in tree_leaves(result):
            if isinstance(tensor, torch.Tensor) and tensor.untyped_storage()._cdata not in known:
                self._follow(tensor.untyped_storage())
        return result

    def _follow(self, storage: torch.UntypedStorage) -> None:
        key, size = storage._cdata, storage.nbytes()
        if key in self._seen:
            return
        self._seen.add(key)
        self.live += size
        self.peak = max(self.peak, self.live)
        weakref.finalize(storage, self._free, key, size)

    def _free(self, key: int, size: int) -> None:
        self._seen.discard(key)
        self.live -= size


def peak_bytes(model: nn.Module, images: torch.Tensor, *, training: bool) -> int:
    """Bytes alive at once at the worst moment of `model(images)`, or of a whole training step with AdamW.

    Args:
        model, images: both on the meta device; the numbers are those of their dtypes.
    """
    weights = sum(t.untyped_storage().nbytes() for t in (*model.parameters(), *model.buffers()))
    parameters = sum(parameter.numel() for parameter in model.parameters())
    with LiveBytes() as tracker, AssumeFused():
        if training:
            model(images).sum().backward()
        else:
            with torch.no_grad():
                model(images)
    for parameter in model.parameters():
        parameter.grad = None
    extra = OPTIMIZER_BYTES * parameters if training else 0
    return weights + extra + images.untyped_storage().nbytes() + tracker.peak


def largest_batch(model: nn.Module, image_shape: tuple[int, int, int], *, budget: int, training: bool) -> int:
    """The most images whose step stays within `budget` bytes: peak memory is a straight line in the batch size."""

    def peak(batch: int) -> int:
        return peak_bytes(model, torch.empty(batch, *image_shape, device="meta"), training=training)

    few, many = peak(8), peak(16)
    per_image = (many - few) / 8
    return max(0, int((budget - (few - 8 * per_image)) / per_image)) if per_image > 0 else 0
