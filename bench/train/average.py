"""Polyak averaging: the weights that are evaluated are an exponential mean over the steps."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor, nn


class Average:
    """The running mean of a model's parameters: a ← factor · a + (1 − factor) · p after every step, a = p at the first.

    The mean is part of the training's state. A branch inherits the trunk's and goes on with it; when the branch is
    done the trunk gets its own back. Buffers are not averaged.

    Args:
        factor: the weight of the past; 0 switches averaging off (then nothing is kept, and evaluation sees the model).
    """

    def __init__(self, model: nn.Module, factor: float) -> None:
        self.model, self.factor = model, factor
        self.mean: dict[str, Tensor] = {}

    @torch.no_grad()
    def update(self) -> None:
        """Take in the weights after a step."""
        if not self.factor:
            return
        now = {name: p.detach() for name, p in self.model.named_parameters()}
        if self.mean:
            torch._foreach_lerp_(list(self.mean.values()), list(now.values()), 1.0 - self.factor)
        else:
            self.mean = {name: p.clone() for name, p in now.items()}

    def restore(self, mean: Mapping[str, Tensor]) -> None:
        """Go on from a kept mean; an empty one starts anew."""
        parameters = dict(self.model.named_parameters())
        self.mean = {name: mean[name].clone().to(p.device) for name, p in parameters.items()} if mean else {}

    @contextlib.contextmanager
    def applied(self) -> Iterator[None]:
        """Inside, the model has the averaged weights; afterwards its own again, to the bit."""
        if not self.mean:
            yield
            return
        own = {name: value.clone() for name, value in self.model.state_dict().items()}
        self.model.load_state_dict(self.mean, strict=False)
        try:
            yield
        finally:
            self.model.load_state_dict(own)
