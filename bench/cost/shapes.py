"""Rules that give the shapes of the results of common operations on the meta device, in place of torch's functions.

Torch's own functions for this purpose are in Python and load torch's compiler and SymPy at the first operation, which
takes as much processor time as importing torch. An operation that has no rule here, or does not fit its rule (other
dtypes, shapes that torch refuses), is left to torch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import zip_longest
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

Rule = Callable[..., Any]  # an operation's arguments -> its result on the meta device; None = no rule, ask torch


def _new(x: Tensor, shape: Sequence[int]) -> Tensor:
    return torch.empty(shape, dtype=x.dtype, device="meta")


def _like(x: Tensor, *_: Any) -> Tensor | None:
    """Return a meta tensor with the shape of `x`, whose axes have the same order in memory; None if that order is
    unknown."""
    if x.is_contiguous():
        return _new(x, x.shape)
    if 0 in x.stride():  # the tensor is expanded, and its strides do not tell the order of its axes
        return None
    strides, step = [0] * x.ndim, 1
    for axis in sorted(range(x.ndim), key=lambda axis: (x.stride(axis), -axis)):
        strides[axis], step = step, step * x.shape[axis]
    return torch.empty_strided(x.shape, strides, dtype=x.dtype, device="meta")


def _binary(x: Any, y: Any, **_: Any) -> Tensor | None:
    """Return the result (a meta tensor) of an elementwise operation on two tensors of one dtype, or on a tensor and a
    number; None for other operands."""
    if not isinstance(x, Tensor) or not x.is_floating_point():
        return None
    if not isinstance(y, Tensor):
        return _like(x)
    if x.dtype != y.dtype or not x.ndim or not y.ndim:
        return None
    pairs = list(zip_longest(reversed(x.shape), reversed(y.shape), fillvalue=1))
    if any(a != b and 1 not in (a, b) for a, b in pairs):
        return None
    shape = torch.Size(a if b == 1 else b for a, b in reversed(pairs))
    if shape == x.shape:
        return _like(x)  # the axes of the result lie in memory as those of the first operand
    return _new(x, shape) if x.is_contiguous() and y.is_contiguous() else None


def _matmul(x: Tensor, y: Tensor) -> Tensor | None:
    """Return the result (a meta tensor) of the product of two matrices, or of two batches of matrices; None if their
    shapes or dtypes do not fit."""
    fits = x.dtype == y.dtype and x.shape[:-2] == y.shape[:-2] and x.shape[-1] == y.shape[-2]
    return _new(x, (*x.shape[:-1], y.shape[-1])) if fits else None


def _addmm(bias: Tensor, x: Tensor, y: Tensor, **_: Any) -> Tensor | None:
    return _matmul(x, y) if bias.shape == y.shape[-1:] and bias.dtype == x.dtype else None


def _cat(tensors: Sequence[Tensor], axis: int = 0) -> Tensor | None:
    first, *others = tensors
    rest = [[size for place, size in enumerate(x.shape) if place != axis % x.ndim] for x in tensors if x.ndim]
    alike = len(rest) == len(tensors) and all(sizes == rest[0] for sizes in rest)
    if not alike or any(x.dtype != first.dtype or (x.ndim == 4 and not x.is_contiguous()) for x in tensors):
        return None
    shape = list(first.shape)
    shape[axis] += sum(x.shape[axis] for x in others)
    return _new(first, shape)


def _convolution(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> Tensor | None:
    axes = x.ndim - 2
    fits = x.ndim == weight.ndim == 4 and len(stride) == len(padding) == len(dilation) == axes
    channels_last = any(
        t.is_contiguous(memory_format=torch.channels_last) and not t.is_contiguous() for t in (x, weight)
    )
    if transposed or not fits or channels_last or x.dtype != weight.dtype:
        return None
    sizes = [
        (size + 2 * pad - gap * (taps - 1) - 1) // step + 1
        for size, pad, gap, taps, step in zip(x.shape[2:], padding, dilation, weight.shape[2:], stride, strict=True)
    ]
    valid = x.shape[1] == weight.shape[1] * groups and not weight.shape[0] % groups and min(sizes) > 0
    if bias is not None:
        valid = valid and bias.shape == weight.shape[:1] and bias.dtype == x.dtype
    return _new(x, (x.shape[0], weight.shape[0], *sizes)) if valid else None


def _layer_norm(x: Tensor, shape: Sequence[int], weight: Tensor | None, bias: Tensor | None, eps: float) -> Any:
    given = [parameter for parameter in (weight, bias) if parameter is not None]
    fits = x.shape[x.ndim - len(shape) :] == tuple(shape) and x.dtype == torch.float32
    if not fits or any(p.shape != tuple(shape) or p.dtype != x.dtype for p in given):
        return None
    statistics = (*x.shape[: x.ndim - len(shape)], *(1 for _ in shape))
    return _new(x, x.shape), _new(x, statistics), _new(x, statistics)


def _group_norm(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, batch: int, channels: int, area: int, groups: int, eps: float
) -> Any:
    given = [parameter for parameter in (weight, bias) if parameter is not None]
    fits = x.is_contiguous() and x.dtype == torch.float32 and x.shape[:2] == (batch, channels) and not channels % groups
    if not fits or any(p.shape != (channels,) or p.dtype != x.dtype for p in given):
        return None
    return _new(x, x.shape), _new(x, (batch, groups)), _new(x, (batch, groups))


def _batch_norm(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    mean: Tensor | None,
    variance: Tensor | None,
    *_: Any,
) -> Any:
    given = [parameter for parameter in (weight, bias, mean, variance) if parameter is not None]
    fits = x.ndim == 4 and x.is_contiguous() and x.dtype == torch.float32
    if not fits or len(given) < 4 or any(p.shape != x.shape[1:2] or p.dtype != x.dtype for p in given):
        return None
    return _new(x, x.shape), _new(x, x.shape[1:2]), _new(x, x.shape[1:2])


def _var_mean(x: Tensor, dim: Sequence[int] | None = None, *, correction: Any = None, keepdim: bool = False) -> Any:
    if x.ndim != 2 or dim is None or tuple(dim) != (1,) or not keepdim or x.dtype != torch.float32:
        return None
    return _new(x, (x.shape[0], 1)), _new(x, (x.shape[0], 1))


def _mean(x: Tensor, dim: Sequence[int] | None, keepdim: bool = False, **options: Any) -> Tensor | None:
    if dim is None or options or x.dtype != torch.float32 or any(not -x.ndim <= axis < x.ndim for axis in dim):
        return None
    gone = {axis % x.ndim for axis in dim}
    steps = [x.stride(axis) for axis, size in enumerate(x.shape) if axis not in gone and size > 1]
    if not dim or len(gone) != len(dim) or steps != sorted(steps, reverse=True):
        return None
    return _new(x, [1 if axis in gone else size for axis, size in enumerate(x.shape) if keepdim or axis not in gone])


def _max_pool(
    x: Tensor, taps: Sequence[int], stride: Sequence[int], padding: Sequence[int] = (0, 0), *more: Any
) -> Any:
    if more or len(padding) != 2 or any(2 * pad > width for pad, width in zip(padding, taps, strict=False)):
        return None
    if x.ndim != 4 or not x.is_contiguous() or len(taps) != 2 or len(stride) != 2 or x.dtype != torch.float32:
        return None
    windows = zip(x.shape[2:], taps, stride, padding, strict=True)
    sizes = [(size + 2 * pad - width) // step + 1 for size, width, step, pad in windows]
    if min(sizes) <= 0:
        return None
    shape = (*x.shape[:2], *sizes)
    return _new(x, shape), torch.empty(shape, dtype=torch.int64, device="meta")


def _softmax(x: Tensor, axis: int, *_: Any) -> Tensor | None:
    return _new(x, x.shape) if x.is_contiguous() and x.dtype == torch.float32 and -x.ndim <= axis < x.ndim else None


def _unary(x: Tensor, *_: Any, **__: Any) -> Tensor | None:
    return _like(x) if x.is_floating_point() else None


_aten: Any = torch.ops.aten
RULES: dict[Any, Rule] = {
    _aten.add.Tensor: _binary,
    _aten.sub.Tensor: _binary,
    _aten.mul.Tensor: _binary,
    _aten.mul.Scalar: _unary,
    _aten.div.Tensor: _binary,
    _aten.sqrt.default: _unary,
    _aten.gelu.default: _unary,
    _aten.mm.default: _matmul,
    _aten.bmm.default: _matmul,
    _aten.addmm.default: _addmm,
    _aten.cat.default: _cat,
    _aten.convolution.default: _convolution,
    _aten.native_layer_norm.default: _layer_norm,
    _aten.native_group_norm.default: _group_norm,
    _aten.native_batch_norm.default: _batch_norm,
    _aten.var_mean.correction: _var_mean,
    _aten.mean.dim: _mean,
    _aten.max_pool2d_with_indices.default: _max_pool,
    _aten._softmax.default: _softmax,
    _aten._safe_softmax.default: _softmax,
}


class KnownShapes(TorchDispatchMode):
    """A context manager inside which the results of operations on the meta device come from `RULES`, if a rule
    applies."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Return False, so that torch does not exclude this mode from compilation: doing so would load its compiler."""
        return False

    def __torch_dispatch__(self, function: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if function in RULES:
            operands = args[0] if isinstance(args[0], list | tuple) else args
            if all(x.is_meta for x in operands if isinstance(x, Tensor)):
                result = RULES[function](*args, **kwargs)
                if result is not None:
                    return result
        return function(*args, **kwargs)
