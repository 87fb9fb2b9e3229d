"""Count multiply-accumulates (MACs): of single operations from their shapes, and of all that runs under a counter.

    with MacCounter(model) as counter:
        model(images)
    counter.total("paper")

Only contractions count (convolutions, matrix products, attention), not norms, softmax, activations and additions. There
are two conventions, which differ in convolutions only. A tap is one position of a convolution's kernel.
    dense: every tap at every output position counts, also those that read zero padding.
    paper: taps that read zero padding do not count (as in XLA's cost analysis, and so in the ViT paper's exaFLOPs).

The counter works on any device, also "meta", where nothing is computed or allocated. It sees the basic operations that
autograd and torch's composite operations consist of, so a fused attention kernel, an unfused one, and the meta device
give the same number. The backward pass is not run: its MACs follow from which factors of each contraction require a
gradient. Recomputation is never counted.
"""

from __future__ import annotations

import contextlib
import math
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.weak import WeakTensorKeyDictionary

from bench.cost.shapes import RULES

Pads = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class OperationCount:
    """The multiply-accumulates of one contraction (a convolution or a matrix product).

    Attributes:
        dense, paper: MACs of the forward pass under each convention (see above).
        needs_grad: how many of its two factors require a gradient, 0 to 2. For each of these the backward pass costs a
            contraction of the same size.
    """

    dense: int
    paper: int
    needs_grad: int = 0


def tap_pairs(*, size: int, outputs: int, kernel: int, stride: int, dilation: int, before: int) -> int:
    """Return along one axis of a convolution the number of pairs (output position, kernel tap) that read an input
    position inside [0, size), not padding.

    Args:
        size: input positions without padding.
        outputs: output positions.
        kernel: taps.
        before: zeros padded in front.
    """
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
    """Return the MACs of a convolution over any number of axes by the two conventions, (dense, paper). For a transposed
    convolution swap `size` and `outputs`.

    Args:
        batch: number of images.
        weight: shape of the weight: (out, in / groups, *kernel).
        size: input positions per axis, without padding.
        outputs: output positions per axis.
        padding: zeros padded in front, per axis.
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
    """Return how many of the arguments are tensors that require a gradient."""
    return sum(bool(getattr(tensor, "requires_grad", False)) for tensor in tensors)


def _product(a: Any, b: Any) -> list[OperationCount]:
    """Return the count of a (batched) product of a matrix or vector `a` with a matrix or vector `b`: every entry of `a`
    is multiplied once for each column of `b`."""
    columns = int(b.shape[-1]) if len(b.shape) > 1 else 1
    macs = math.prod(map(int, a.shape)) * columns
    return [OperationCount(macs, macs, wants_grad(a, b))]


def _attention(q: Any, k: Any, v: Any, *, heads_axis: int = 1) -> list[OperationCount]:
    """Return the counts of the two products in softmax(q k^T) v. The tensors are (batch, heads, tokens, width), or
    (batch, tokens, heads, width) if `heads_axis` is 2.

    All pairs of tokens count, also those that a mask excludes. Recomputation in fused backward kernels is not counted:
    it is not the model's work, and counting it would make the number depend on the device.
    """
    tokens_axis = 3 - heads_axis
    batch, heads = int(q.shape[0]), int(q.shape[heads_axis])
    pairs = batch * heads * int(q.shape[tokens_axis]) * int(k.shape[tokens_axis])
    scores, mix = pairs * int(q.shape[-1]), pairs * int(v.shape[-1])
    weights_want = int(wants_grad(q, k) > 0)
    return [OperationCount(scores, scores, wants_grad(q, k)), OperationCount(mix, mix, weights_want + wants_grad(v))]


def _self_attention(x: Any, *, width: int) -> list[OperationCount]:
    """Return the count of a fused self-attention layer on x (batch, tokens, width): four projections and softmax
    attention."""
    batch, tokens = int(x.shape[0]), int(x.shape[1])
    macs = batch * (4 * tokens * width * width + 2 * tokens * tokens * width)
    return [OperationCount(macs, macs)]


def _encoder_layer(args: Sequence[Any]) -> list[OperationCount]:
    x, width = args[0], int(args[1])
    hidden = next(int(a.shape[0]) for a in args[8:] if len(getattr(a, "shape", ())) == 2)
    mlp = 2 * int(x.shape[0]) * int(x.shape[1]) * width * hidden
    return [*_self_attention(x, width=width), OperationCount(mlp, mlp)]


FORMULAS: dict[str, Callable[[Sequence[Any]], list[OperationCount]]] = {
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
"""Name of an operation -> function from its arguments to the counts of its contractions. Convolutions have no entry,
because their count needs the output too: `MacCounter` counts them."""

_MATRIX = ("mv", "matmul", "linear", "bilinear", "trilinear", "einsum", "attention")
SUSPECTS = frozenset(("conv", "conv1d", "conv2d", "conv3d", "convolution", "lstm", "gru", "rnn", *_MATRIX))


class NoFormula(NotImplementedError):
    """Raised for an operation that looks like a contraction and has no formula for its MACs here."""


def is_uncounted_contraction(name: str) -> bool:
    """Return whether an operation that has no formula looks like a contraction by its name ("aten::einsum"). The
    counter raises an error for such an operation, because its work would be missed otherwise."""
    words = name.split("::")[-1].split(".")[0].split("_")
    return "backward" not in words and any(word in SUSPECTS or word.endswith("mm") for word in words)


class MacCounter(TorchDispatchMode):
    """Counts the MACs of everything that runs inside its `with` block, by module and operation.

    Args:
        model: the model whose modules are told apart; None = all is counted under the path "".

    Attributes:
        by_module: convention ("dense" or "paper") -> {module's path: forward MACs of that module itself, without its
            children}. "" is the model.
        by_operation: convention -> {operation: forward MACs}.
        backward: convention -> MACs of the backward pass that would follow. First layers compute no gradient of their
            input.

    Raises (inside the block):
        NotImplementedError: an operation that looks like a contraction and has no formula.
    """

    def __init__(self, model: nn.Module | None = None) -> None:
        super().__init__()
        self.by_module: dict[str, Counter[str]] = {"dense": Counter(), "paper": Counter()}
        self.by_operation: dict[str, Counter[str]] = {"dense": Counter(), "paper": Counter()}
        self.backward: dict[str, int] = {"dense": 0, "paper": 0}
        self._model = model
        self._path: list[str] = []
        self._padded: Any = WeakTensorKeyDictionary()  # tensor -> numbers of zeros that F.pad put around it
        self._exit = contextlib.ExitStack()
        self._depth = 0

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Return False, so that torch does not exclude this mode from compilation: doing so would load its compiler."""
        return False

    def total(self, convention: str) -> int:
        return sum(self.by_module[convention].values())

    def __enter__(self) -> MacCounter:
        self._depth += 1
        if self._depth == 1:  # the counter enters itself again to look inside composite operations
            self._prepare()
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        self._depth -= 1
        if self._depth == 0:
            self._exit.close()

    def _prepare(self) -> None:
        # A compiled module would run kernels that have no formula: make it run uncompiled. If the compiler is not
        # loaded, nothing is compiled; it is not loaded just for this, which takes as long as loading all of torch.
        if "torch._dynamo" in sys.modules:
            self._exit.enter_context(torch.compiler.set_stance("force_eager"))
        for name, module in self._model.named_modules() if self._model is not None else ():
            path = name.replace("_orig_mod.", "").replace("_orig_mod", "")
            enter = module.register_forward_pre_hook(lambda *_, path=path: self._path.append(path))
            leave = module.register_forward_hook(lambda *_: self._leave(), always_call=True)
            self._exit.callback(enter.remove)
            self._exit.callback(leave.remove)

    def _leave(self) -> None:
        self._path.pop()

    def __torch_dispatch__(self, function: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = function.name().split(".")[0]
        if name in FORMULAS:
            self._add(name, FORMULAS[name](args))
            return function(*args, **kwargs)
        if function.namespace == "aten" and function not in RULES and function._can_decompose():
            with self:  # a composite operation that autograd has not decomposed, as in inference mode
                result = function.decompose(*args, **kwargs)
            if result is not NotImplemented:
                return result
        result = function(*args, **kwargs)
        if name in ("aten::convolution", "aten::_convolution"):
            self._add(name, [self._convolution(args, result)])
        elif name == "aten::constant_pad_nd":
            self._remember_padding(args, result)
        elif is_uncounted_contraction(name):
            raise NoFormula(f"No formula for {name}: add one to bench/cost/counter.py.")
        return result

    def _add(self, name: str, works: list[OperationCount]) -> None:
        path = self._path[-1] if self._path else ""
        for work in works:
            for convention, macs in (("dense", work.dense), ("paper", work.paper)):
                self.by_module[convention][path] += macs
                self.by_operation[convention][name.removeprefix("aten::")] += macs
                self.backward[convention] += macs * work.needs_grad

    def _convolution(self, args: Sequence[Any], result: torch.Tensor) -> OperationCount:
        image, weight, _, stride, padding, dilation, transposed = args[:7]
        axes = image.ndim - 2
        per_axis = [list(map(int, v)) * (axes if len(v) == 1 else 1) for v in (stride, padding, dilation)]
        size, outputs = list(map(int, image.shape[2:])), list(map(int, result.shape[2:]))
        before = per_axis[1]
        if transposed:
            size, outputs = outputs, size
        else:
            pads: Pads = self._padded.get(image, ((0, 0),) * axes)
            size = [s - front - back for s, (front, back) in zip(size, pads, strict=True)]
            before = [b + front for b, (front, _) in zip(before, pads, strict=True)]
        dense, paper = convolution(
            batch=int(image.shape[0]) if image.ndim == weight.ndim else 1,
            weight=tuple(map(int, weight.shape)),
            size=size,
            outputs=outputs,
            stride=per_axis[0],
            padding=before,
            dilation=per_axis[2],
        )
        return OperationCount(dense, paper, wants_grad(image, weight))

    def _remember_padding(self, args: Sequence[Any], result: torch.Tensor) -> None:
        pads, value = list(map(int, args[1])), args[2] if len(args) > 2 else 0
        if value == 0 and result.ndim > 2 and min(pads, default=0) >= 0 and len(pads) <= 2 * (result.ndim - 2):
            last_first = list(zip(pads[::2], pads[1::2], strict=True))
            missing = result.ndim - 2 - len(last_first)
            self._padded[result] = ((0, 0),) * missing + tuple(reversed(last_first))
