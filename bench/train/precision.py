"""The precision policy, in one place.

Weights, gradients, optimizer state and the loss are float32 everywhere. On a GPU the forward pass runs under bfloat16
autocast (no loss scaling needed). On a CPU it stays float32: at the widths and batches of the `cpu` scale bfloat16
gains nothing, and it disturbs the gradients of weight-standardised networks with group normalisation. Probes are
float64.
"""

from __future__ import annotations

import contextlib

import torch

from bench.errors import UserError

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def resolve(dtype: str, device: str) -> str:
    """The dtype that "auto" means on a device.

    Raises:
        UserError: unknown dtype.
    """
    if dtype == "auto":
        return "bfloat16" if device.startswith("cuda") else "float32"
    if dtype not in DTYPES:
        raise UserError(f"Unknown dtype {dtype!r}.", f"Allowed: auto, {', '.join(DTYPES)}.")
    return dtype


def autocast(dtype: str, device: str) -> contextlib.AbstractContextManager:
    """The context in which forward passes run."""
    if dtype == "float32":
        return contextlib.nullcontext()
    return torch.autocast(device.split(":")[0], dtype=DTYPES[dtype])
