"""Memory of a model: bytes kept for the backward pass, from shapes on the meta device, and peaks measured on this
machine."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from bench.core.device import module


class _FusedAttention(torch.autograd.Function):
    """Attention that saves for the backward pass the tensors that fused kernels save: q, k, v, the result, and one
    number per query. Shapes are right, but nothing is computed."""

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
    """A context manager inside which attention over N tokens saves no N x N matrix for the backward pass, as on
    accelerators. Without it, torch computes attention on the meta device in separate operations, which save such a
    matrix."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if function is F.scaled_dot_product_attention and len(args) >= 3 and kwargs.get("attn_mask") is None:
            return _FusedAttention.apply(*args[:3])
        return function(*args, **kwargs)


def activation_bytes(
    model: nn.Module, images: Callable[[int], torch.Tensor], *, run: Callable[..., Any] | None = None
) -> int:
    """Return the bytes that autograd keeps for the backward pass per image.

    The result is the difference between passes over two images and over one, which does not contain copies of weights.

    Args:
        images: number -> so many images on the meta device. Activations have their dtype; mixed precision keeps about
            half of these bytes.
        run: a method of the model to be called instead of the model; None = the model.
    """
    return _saved_bytes(model, images(2), run or model) - _saved_bytes(model, images(1), run or model)


def _saved_bytes(model: nn.Module, images: torch.Tensor, run: Callable[..., Any]) -> int:
    """Return the bytes of the distinct tensors that `run(images)` saves for the backward pass, without the model's
    parameters and buffers."""
    own = {tensor.untyped_storage()._cdata for tensor in (*model.parameters(), *model.buffers())}
    kept: dict[int, torch.UntypedStorage] = {}  # holding the storages keeps their addresses from being reused

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in own:
            kept[storage._cdata] = storage
        return tensor

    with torch.enable_grad(), torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor), AssumeFused():
        output = run(images)
    del output
    return sum(storage.nbytes() for storage in kept.values())


# -- measured ----------------------------------------------------------------------------------------------------------

# `ru_maxrss` alone would do where there is no /proc, but on Linux it is also the peak of whatever process started this
# one (getrusage(2) keeps it across exec), and cannot be reset.
_STATUS_FILE = Path("/proc/self/status")
_PEAK_RESET_FILE = Path("/proc/self/clear_refs")


def measured_peak_bytes(device: str = "cpu") -> int:
    """Return the largest number of bytes in use at once since `reset_peak`: on `device` if it is an accelerator, else
    by this process."""
    if not device.startswith(("cpu", "mps")):
        return module(device).max_memory_allocated(device)  # type: ignore[no-any-return]
    with contextlib.suppress(OSError):
        for line in _STATUS_FILE.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024  # proc_pid_status(5): in kB
    import resource  # imported here: Windows has no such module

    unit = 1 if sys.platform == "darwin" else 1024  # getrusage(2): bytes on macOS, kilobytes elsewhere
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def reset_peak(device: str = "cpu") -> None:
    """Start `measured_peak_bytes` anew for a device, where the system allows it. This is needed because a worker runs
    many cells in one process."""
    if not device.startswith(("cpu", "mps")) and module(device).is_initialized():
        module(device).reset_peak_memory_stats(device)
    with contextlib.suppress(OSError):
        _PEAK_RESET_FILE.write_text("5")  # proc_pid_clear_refs(5): resets the peak resident set size
