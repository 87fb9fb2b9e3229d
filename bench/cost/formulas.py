"""Multiply-accumulates (MACs) of single operations, from shapes alone: no torch import, no device, Python ints.

Two conventions, the same for everything but convolutions:
    dense: every tap of every output position of a convolution counts, also those that read zero padding.
    paper: taps that read zero padding do not count (XLA's cost analysis; the paper's exaFLOPs are computed so).
Only contractions count (convolutions, matrix products, attention). Norms, softmax, activations, additions do not.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

CONVENTIONS = ("dense", "paper")


@dataclass(frozen=True)
class Work:
    """One contraction.

    Attributes:
        dense, paper: MACs forward under each convention.
        needs_grad: how many of its two factors want a gradient: the backward pass costs one contraction of the same
            size for each.
    """

    dense: int
    paper: int
    needs_grad: int = 0


def tap_pairs(*, size: int, outputs: int, kernel: int, stride: int, dilation: int, before: int) -> int:
    """Pairs (output position, kernel tap) along one axis that read inside [0, size); `before` = padding in front."""
    total = 0
    for tap in range(kernel):
        offset = tap * dilation - before
        # o*stride + offset must lie in [0, size)
        first = max(0, (stride - 1 - offset) // stride)
        last = min(outputs - 1, (size - 1 - offset) // stride)
        total += max(0, last - first + 1)
    return total


def convolution(
    *,
    batch: int,
    weight: Sequence[int],
    size: Sequence[int],
    outputs: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
) -> tuple[int, int]:
    """(dense, paper) MACs of a convolution with kernel `weight` = (out, in/groups, *kernel), any number of axes.

    `size` is the extent of the image without padding, `outputs` that of the result, `padding` what precedes the image.
    Groups are in the weight's second entry. A transposed convolution is its mirror: swap `size` and `outputs`.
    """
    kernel = weight[2:]
    per_pair = batch * weight[0] * weight[1]
    dense = per_pair * math.prod(kernel) * math.prod(outputs)
    inside = math.prod(
        tap_pairs(size=s, outputs=o, kernel=k, stride=st, dilation=d, before=p)
        for s, o, k, st, d, p in zip(size, outputs, kernel, stride, dilation, padding, strict=True)
    )
    return dense, per_pair * inside


def wants_grad(*tensors: Any) -> int:
    """How many of the tensors want a gradient."""
    return sum(bool(getattr(tensor, "requires_grad", False)) for tensor in tensors)


def _product(a: Any, b: Any) -> list[Work]:
    """A (batched) matrix or vector product: every entry of `a` meets each column of `b`."""
    columns = int(b.shape[-1]) if len(b.shape) > 1 else 1
    macs = math.prod(map(int, a.shape)) * columns
    return [Work(macs, macs, wants_grad(a, b))]


def _attention(q: Any, k: Any, v: Any, *, heads_axis: int = 1) -> list[Work]:
    """softmax(q k^T) v on 4-d tensors; `heads_axis` 1: (batch, heads, tokens, width), 2: (batch, tokens, heads, width).

    Masks and causality are not discounted. Recomputation in fused backward kernels is not counted: it is not the
    model's work, and counting it would make the number depend on the device.
    """
    tokens_axis = 3 - heads_axis
    batch, heads = int(q.shape[0]), int(q.shape[heads_axis])
    pairs = batch * heads * int(q.shape[tokens_axis]) * int(k.shape[tokens_axis])
    scores, mix = pairs * int(q.shape[-1]), pairs * int(v.shape[-1])
    weights_want = int(wants_grad(q, k) > 0)
    return [Work(scores, scores, wants_grad(q, k)), Work(mix, mix, weights_want + wants_grad(v))]


def _self_attention(x: Any, *, width: int) -> list[Work]:
    """Fused self-attention layer: four projections of `width` and softmax attention, x (batch, tokens, width)."""
    batch, tokens = int(x.shape[0]), int(x.shape[1])
    macs = batch * (4 * tokens * width * width + 2 * tokens * tokens * width)
    return [Work(macs, macs)]


def _encoder_layer(args: Sequence[Any]) -> list[Work]:
    x, width = args[0], int(args[1])
    hidden = next(int(a.shape[0]) for a in args[8:] if len(getattr(a, "shape", ())) == 2)
    mlp = 2 * int(x.shape[0]) * int(x.shape[1]) * width * hidden
    return [*_self_attention(x, width=width), Work(mlp, mlp)]


FORMULAS: dict[str, Callable[[Sequence[Any]], list[Work]]] = {
    "aten::mm": lambda args: _product(args[0], args[1]),
    "aten::bmm": lambda args: _product(args[0], args[1]),
    "aten::mv": lambda args: _product(args[0], args[1]),
    "aten::dot": lambda args: _product(args[0], args[1]),
    "aten::addmm": lambda args: _product(args[1], args[2]),
    "aten::_addmm_activation": lambda args: _product(args[1], args[2]),
    "aten::addmv": lambda args: _product(args[1], args[2]),
    "aten::baddbmm": lambda args: _product(args[1], args[2]),
    "aten::addbmm": lambda args: _product(args[1], args[2]),
    "aten::_scaled_mm": lambda args: _product(args[0], args[1]),
    "aten::_int_mm": lambda args: _product(args[0], args[1]),
    "aten::_scaled_dot_product_flash_attention": lambda args: _attention(*args[:3]),
    "aten::_scaled_dot_product_flash_attention_for_cpu": lambda args: _attention(*args[:3]),
    "aten::_scaled_dot_product_efficient_attention": lambda args: _attention(*args[:3]),
    "aten::_scaled_dot_product_cudnn_attention": lambda args: _attention(*args[:3]),
    "aten::_scaled_dot_product_fused_attention_overrideable": lambda args: _attention(*args[:3]),
    "aten::_scaled_dot_product_attention_math_for_mps": lambda args: _attention(*args[:3]),
    "aten::_efficient_attention_forward": lambda args: _attention(*args[:3], heads_axis=2),
    "aten::_flash_attention_forward": lambda args: _attention(*args[:3], heads_axis=2),
    "aten::_native_multi_head_attention": lambda args: _self_attention(args[0], width=int(args[3])),
    "aten::_transformer_encoder_layer_fwd": _encoder_layer,
}
"""Operation -> its contractions, from its arguments. Convolutions need their output too and are in `counter.py`."""

_MATRIX = ("mv", "matmul", "linear", "bilinear", "trilinear", "einsum", "attention")
SUSPECTS = frozenset(("conv", "conv1d", "conv2d", "conv3d", "convolution", "lstm", "gru", "rnn", *_MATRIX))


def is_uncounted_contraction(name: str) -> bool:
    """Whether an operation without a formula looks like a contraction; the counter refuses it rather than miss it."""
    words = name.split("::")[-1].split(".")[0].split("_")
    return "backward" not in words and any(word in SUSPECTS or word.endswith("mm") for word in words)
