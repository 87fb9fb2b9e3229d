"""The module behind the raw-pixel baseline."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Pixels(nn.Module):
    """features(x_BCHW) -> x_BF with F = C x H x W; there is no classifier."""

    def __init__(self, *, num_features: int) -> None:
        super().__init__()
        self.num_features = num_features
        self.head = nn.Identity()

    def init_weights(self, generator: torch.Generator | None = None) -> None:
        """Nothing to initialise."""

    def features(self, x_BCHW: Tensor) -> Tensor:
        return x_BCHW.flatten(1)

    def forward(self, x_BCHW: Tensor) -> Tensor:
        raise NotImplementedError("'pixels' has no classifier; use features() and a probe on them")
