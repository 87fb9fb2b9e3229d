"""Make the network with which a trained model's features and logits are computed, in the precision of evaluation.

In "float32" it is the model itself. In "bfloat16" it is a copy with weights and activations of that type, as in
training (bench/train/precision.py); its blocks are compiled if those of training are. The classifier stays float32,
because logits rounded to bfloat16 are often tied, which changed more decisions than everything else. Probes are
float64, losses float32.

"auto" is bfloat16 on a GPU and float32 on a CPU.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F

from bench.core.device import InBatches
from bench.train import modes, precision


def resolve(dtype: str, device: str, model: nn.Module) -> str:
    """Return the dtype in which a model is evaluated on a device, "float32" or "bfloat16"; always "float32" for a model
    without weights.

    Args:
        dtype: "auto", "float32" or "bfloat16".

    Raises:
        UserError: the dtype is unknown.
    """
    if not any(parameter.numel() for parameter in model.parameters()):
        return "float32"
    return precision.resolve("float32" if dtype == "auto" and not device.startswith("cuda") else dtype, device)


def in_precision(model: nn.Module, *, dtype: str, device: str, batches: InBatches) -> nn.Module:
    """Return a module that computes features and logits in place of `model`, with its present weights.

    Args:
        model: a model on `device`, in eval mode.
        dtype: "float32", which returns the model itself, or "bfloat16".
        batches: divides images into the batches that the module will be given; code is compiled for their size.
    """
    return model if dtype == "float32" else LowPrecision(model, dtype=dtype, device=device, batches=batches)


class LowPrecision(nn.Module):
    """A copy of a model in eval mode that computes in lower precision, except for its classifier; see
    `in_precision`."""

    def __init__(self, model: nn.Module, *, dtype: str, device: str, batches: InBatches) -> None:
        super().__init__()
        self.network = precision.Working(model, dtype).network  # shares its float32 weights with the model
        if isinstance(head := getattr(model, "head", None), nn.Module):
            tensors = (*head.parameters(), *head.buffers())
            self.network.head = copy.deepcopy(head, {id(tensor): tensor for tensor in tensors}).eval()
            self.network.head.register_forward_pre_hook(
                lambda _, inputs: tuple(x.float() if isinstance(x, Tensor) else x for x in inputs)
            )
        self.dtype, self.batches = precision.DTYPES[dtype], batches
        self.compiles = False
        self.attention: Callable[[int], AbstractContextManager[Any]] = nullcontext
        if (mode := modes.mode_for(device)) != "off":
            from bench.train import compiled

            if not device.startswith("cuda") or not compiled.obstacle(device):
                compiled.compiled(self.network, mode=mode)
                self.compiles = True
            if self.compiles and mode in modes.WITH_GRAPHS:
                ranked = partial(compiled.attention, self.network, dtype=self.dtype, device=device)
                self.attention = lambda batch: ranked(batch=batch)
        self.eval()

    def features(self, x_BCHW: Tensor) -> Tensor:
        """Return the features of images before the classifier: (B, F) in `dtype`."""
        return self._run(self.network.features, x_BCHW)  # type: ignore[arg-type]

    def forward(self, x_BCHW: Tensor) -> Tensor:
        """Return the logits of images: (B, K)."""
        return self._run(self.network, x_BCHW)

    def _run(self, function: Callable[[Tensor], Tensor], x_BCHW: Tensor) -> Tensor:
        """Return `function(x_BCHW)`, computed in `dtype` with the fastest attention kernels, as in training.

        Args:
            function: the network, or one of its methods.
        """
        whole_BCHW = self._input(x_BCHW)
        with self.attention(len(whole_BCHW)):
            return function(whole_BCHW)[: len(x_BCHW)]

    def _input(self, x_BCHW: Tensor) -> Tensor:
        """Return images in `dtype`. Where code is compiled, a smaller last batch is padded with zeros to the size of
        the others, because code is compiled for that size."""
        x_BCHW = x_BCHW.to(self.dtype)
        missing = self.batches.batch - len(x_BCHW) if self.compiles else 0
        return F.pad(x_BCHW, (0, 0) * 3 + (0, missing)) if missing > 0 else x_BCHW
