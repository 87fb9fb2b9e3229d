"""Find how much of an image a network's features see (bench/cost/sight.py), from one forward pass on the meta device.

For each tensor that is computed from the image, its field of view is kept: how many pixels of the image one position of
the tensor depends on. Convolutions and pooling widen the field of view; a matrix product may mix all positions, so its
outputs are taken to see everything; other operations join the fields of view of their inputs. The result is the field
of view just before the last average over a whole map. It depends on the sizes of kernels only, not on weights, so
nothing is computed.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.weak import WeakTensorKeyDictionary

from bench.cost.shapes import KnownShapes
from bench.cost.sight import SMALL_GROUP, Sight
from bench.cost.without_weights import looked_at
from bench.study import registry

Options = tuple[tuple[str, Any], ...]
Pair = tuple[float, float]

WINDOWS = ("max_pool2d_with_indices", "max_pool2d", "avg_pool2d")
ADAPTIVE = ("_adaptive_avg_pool2d", "adaptive_max_pool2d")
AVERAGES = ("mean", "sum", "amax")
PRODUCTS = ("mm", "bmm", "mv", "addmm", "baddbmm", "matmul", "linear", "einsum")


@functools.lru_cache(maxsize=256)
def of_model(name: str, *, image_size: int, channels: int, model_options: Options = ()) -> Sight:
    """Return what limits the features of a registered model: how much of an image each feature sees, and the size of
    groups of the last normalisation. An empty `Sight` is returned for a model that is not trained.

    Args:
        image_size: pixels per side.
        model_options: (name, value) pairs for `bench.study.registry.build_model`.

    Raises:
        UserError: the model is unknown, or cannot take this size.
    """
    if not registry.family_of(name).trains:
        return Sight()
    sizes: dict[str, Any] = {"image_size": image_size, "channels": channels, "num_classes": 2}
    return looked_at(name, lambda model, images: _of(model, images(1)), **sizes, **dict(model_options))


def of_network(model: Any, *, image_size: int, channels: int) -> Sight:
    """Return what limits the features of a network on the meta device (see `of_model`). The network must have a method
    `features`, and is put into eval mode. `image_size` is in pixels per side."""
    return _of(model.eval(), torch.empty(1, channels, image_size, image_size, device="meta"))


def _of(model: Any, x_BCHW: Tensor) -> Sight:
    image_size = int(x_BCHW.shape[-1])
    norms = [module for module in model.modules() if isinstance(module, nn.GroupNorm)]
    group = norms[-1].num_channels // norms[-1].num_groups if norms else SMALL_GROUP
    with torch.no_grad(), KnownShapes(), Follower(x_BCHW) as follower:
        model.features(x_BCHW)
    sees = min(follower.averaged)
    return Sight(pixels=int(sees) if sees < image_size else None, group=group if group < SMALL_GROUP else None)


@dataclass(frozen=True)
class FieldOfView:
    """The field of view of the positions of a feature map, in pixels of the image along (height, width).

    Attributes:
        pixels: how many pixels one position sees.
        step: distance between what two neighbouring positions see.
    """

    pixels: Pair
    step: Pair

    def through(self, kernel: Sequence[int], stride: Sequence[float], dilation: Sequence[int] = (1, 1)) -> FieldOfView:
        """Return the field of view of the outputs of a convolution or pooling over the map, given its kernel size,
        stride and dilation along (height, width)."""
        high, wide = (p + (k - 1) * d * s for p, s, k, d in zip(self.pixels, self.step, kernel, dilation, strict=True))
        return FieldOfView((high, wide), (self.step[0] * stride[0], self.step[1] * stride[1]))

    def joined(self, other: FieldOfView) -> FieldOfView:
        """Return the field of view of a map that is computed position by position from this map and another one."""
        (a, b), (c, d) = zip(self.pixels, other.pixels, strict=True), zip(self.step, other.step, strict=True)
        return FieldOfView((max(a), max(b)), (max(c), max(d)))


PIXEL = FieldOfView((1, 1), (1, 1))
EVERYTHING = FieldOfView((math.inf, math.inf), (1, 1))


class Follower(TorchDispatchMode):
    """A context manager that inside its block keeps the field of view of each tensor that is computed from `images`.

    Attributes:
        averaged: pixels along (height, width) that each position sees of the last map that was averaged over its
            positions; infinite if no map was averaged.
    """

    def __init__(self, images: Tensor) -> None:
        super().__init__()
        self.averaged: Pair = EVERYTHING.pixels
        self._seen: Any = WeakTensorKeyDictionary()
        self._seen[images] = PIXEL

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Return False, so that torch does not exclude this mode from compilation: doing so would load its compiler."""
        return False

    def __torch_dispatch__(self, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = operation(*args, **(kwargs or {}))
        inputs = [one for arg in args for one in (arg if isinstance(arg, list | tuple) else (arg,))]
        known = [self._seen[one] for one in inputs if isinstance(one, Tensor) and one in self._seen]
        if known:
            seen = self._after(operation.overloadpacket.__name__, args, functools.reduce(FieldOfView.joined, known))
            for one in result if isinstance(result, list | tuple) else (result,):
                if isinstance(one, Tensor):
                    self._seen[one] = seen
        return result

    def _after(self, operation: str, args: Sequence[Any], seen: FieldOfView) -> FieldOfView:
        """Return the field of view of the results of an operation, given its name, its arguments, and the field of view
        of all its inputs together (`seen`)."""
        x = args[0]
        if operation == "convolution":
            _, weight, _, stride, _, dilation, transposed = args[:7]
            if weight.ndim != 4 or transposed:
                return EVERYTHING
            return seen.through(weight.shape[2:], _pair(stride), _pair(dilation))
        if operation in WINDOWS:
            kernel = _pair(args[1])
            return seen.through(kernel, _pair(args[2]) if len(args) > 2 and args[2] else kernel)
        if operation in ADAPTIVE and (out := _pair(args[1])) != (1, 1):
            kernel = (-(-x.shape[-2] // out[0]), -(-x.shape[-1] // out[1]))
            return seen.through(kernel, kernel)
        if operation in ADAPTIVE or (operation in AVERAGES and _over_positions(x, args[1:])):
            self.averaged = seen.pixels
            return EVERYTHING
        if operation == "slice" and len(args) > 4 and (axis := args[1] % x.ndim - x.ndim) >= -2:
            return seen.through((1, 1), (args[4], 1) if axis == -2 else (1, args[4]))
        if "upsample" in operation:
            steps = [s * before / after for s, before, after in zip(seen.step, x.shape[-2:], args[1], strict=True)]
            return FieldOfView(seen.pixels, (steps[0], steps[1]))
        return EVERYTHING if operation in PRODUCTS or "attention" in operation else seen


def _over_positions(x: Tensor, others: Sequence[Any]) -> bool:
    """Return whether a reduction of `x` is over the positions of a map, not over channels or images alone. `others` are
    the reduction's arguments after `x`, the axes first."""
    axes = [] if not others or others[0] is None else others[0]
    return x.ndim > 2 and any(axis % x.ndim > 1 for axis in (axes if isinstance(axes, list | tuple) else [axes]) or [2])


def _pair(value: Any) -> tuple[int, int]:
    values = [value] if isinstance(value, int) else list(value)
    return values[0], values[-1]
