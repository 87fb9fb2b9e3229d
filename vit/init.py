"""Initialisers that are a pure function of a torch.Generator, whatever device the parameter is on.

Numbers are drawn on the generator's device in float32 and copied, so a seed gives the same model on every machine.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn


def _fill(parameter: Tensor, draw: Callable[[Tensor], Tensor], generator: torch.Generator | None) -> None:
    with torch.no_grad():
        device = parameter.device if generator is None else generator.device
        direct = parameter.device == device and parameter.dtype == torch.float32 and parameter.is_contiguous()
        if parameter.device.type == "meta" or direct:
            draw(parameter)
        else:
            drawn = torch.empty(parameter.shape, dtype=torch.float32, device=device)
            parameter.copy_(draw(drawn))


def normal(parameter: Tensor, std: float, generator: torch.Generator | None) -> None:
    """N(0, std)."""
    _fill(parameter, lambda t: nn.init.normal_(t, std=std, generator=generator), generator)


def xavier_uniform(parameter: Tensor, generator: torch.Generator | None) -> None:
    """Xavier (Glorot) uniform for an (out, in) matrix, in place; also for a slice of one."""
    _fill(parameter, lambda t: nn.init.xavier_uniform_(t, generator=generator), generator)


def lecun_normal(parameter: Tensor, generator: torch.Generator | None) -> None:
    """flax's default: normal of variance 1 / fan_in, cut at two standard deviations, for (out, in, ...) weights."""
    # 0.8796 is the standard deviation of a unit normal cut at +-2, which jax.nn.initializers divides out.
    std = math.sqrt(1 / math.prod(parameter.shape[1:])) / 0.87962566103423978
    _fill(
        parameter,
        lambda t: nn.init.trunc_normal_(t, std=std, a=-2 * std, b=2 * std, generator=generator),
        generator,
    )


def constant(parameter: Tensor | None, value: float) -> None:
    """Fill with one value; a missing bias is no error."""
    if parameter is not None:
        nn.init.constant_(parameter, value)
