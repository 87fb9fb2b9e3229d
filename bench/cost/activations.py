"""How much memory a forward pass leaves behind for the backward pass, without running either for real."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode


class _FusedAttention(torch.autograd.Function):
    """Keeps what fused attention kernels keep: q, k, v, the result, and one number per query. Shapes only."""

    @staticmethod
    def forward(ctx: Any, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        result = q.new_empty(*q.shape[:-1], v.shape[-1])
        log_sums = q.new_empty(q.shape[:-1])
        ctx.save_for_backward(q, k, v, result, log_sums)
        return result

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        q, k, v, *_ = ctx.saved_tensors
        return torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)


class AssumeFused(TorchFunctionMode):
    """On the meta device torch spells attention out and would keep an N x N matrix that no accelerator keeps."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if function is F.scaled_dot_product_attention and len(args) >= 3 and kwargs.get("attn_mask") is None:
            return _FusedAttention.apply(*args[:3])
        return function(*args, **kwargs)


def saved_bytes(model: nn.Module, images: torch.Tensor, *, run: Callable[..., Any] | None = None) -> int:
    """Bytes of distinct tensors saved by `model(images)` for its backward pass; parameters and buffers left out.

    `run`, a method of the model, is called instead of it where given. `images` is on the meta device. The numbers are
    those of its dtype; mixed precision keeps about half.
    """
    own = {tensor.untyped_storage()._cdata for tensor in (*model.parameters(), *model.buffers())}
    kept: dict[int, torch.UntypedStorage] = {}  # holding the storages keeps their addresses from being reused

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in own:
            kept[storage._cdata] = storage
        return tensor

    with torch.enable_grad(), torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor), AssumeFused():
        output = (run or model)(images)
    del output
    return sum(storage.nbytes() for storage in kept.values())
