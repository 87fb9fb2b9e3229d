"""Compact Convolutional Transformers (Hassani et al. 2021): convolutions make the tokens, and attention pools them.

Facts: the paper's section 3 and its authors' code, whose logits a test compares with. Attention, MLP and positions are
the ViT's own; what differs from its blocks is said at each class.
Shapes: B images, C channels, H and W pixels, N tokens, D width.
"""

from __future__ import annotations

import itertools
import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vit import layers
from vit.config import ViTConfig

HIDDEN = 64  # channels between two convolutions of the tokenizer


def stride_of(kernel: int) -> int:
    """The stride of a convolution of the tokenizer: 1, but 2 where its kernel has 7 pixels."""
    return max(1, kernel // 2 - 1)


def pixels_per_token(*, kernel: int, convolutions: int) -> int:
    """The tokenizer's total stride: each pooling halves the map that its convolution makes."""
    return (2 * stride_of(kernel)) ** convolutions


class Tokenizer(nn.Sequential):
    """x_BCHW -> map: convolution without bias, ReLU and max-pooling of stride 2, repeated."""

    def __init__(self, channels: int, width: int, *, kernel: int, convolutions: int) -> None:
        sizes = (channels, *(HIDDEN,) * (convolutions - 1), width)
        super().__init__(
            *(
                nn.Sequential(
                    nn.Conv2d(a, b, kernel, stride=stride_of(kernel), padding=kernel // 2, bias=False),
                    nn.ReLU(inplace=True),
                    nn.MaxPool2d(3, 2, padding=1),
                )
                for a, b in itertools.pairwise(sizes)
            )
        )


class CompactBlock(nn.Module):
    """x = norm(x + attention(norm(x))), then x + mlp(x): the MLP's norm stands in the residual stream, as in the
    authors' code."""

    def __init__(self, config: ViTConfig, drop_path: float) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(config.width, eps=config.norm_eps)
        self.attn = layers.Attention(config)
        self.norm2 = nn.LayerNorm(config.width, eps=config.norm_eps)
        self.mlp = layers.Mlp(config)
        self.drop = nn.Dropout(config.dropout)
        self.drop_path = drop_path

    def path(self, y_BND: Tensor) -> Tensor:
        """Stochastic depth: what a layer adds is left out for some images of a batch, and grown for the others."""
        if not self.training or not self.drop_path:
            return y_BND
        return y_BND * F.dropout(y_BND.new_ones(len(y_BND), 1, 1), self.drop_path)

    def forward(self, x_BND: Tensor) -> Tensor:
        x_BND = self.norm2(x_BND + self.path(self.drop(self.attn(self.norm1(x_BND)))))
        return x_BND + self.path(self.drop(self.mlp(x_BND)))


class CCT(nn.Module):
    """Images x_BCHW to class logits x_BK.

    Args:
        config: of the encoder: its patches are the tokenizer's.
        channels: of the images.
        kernel, convolutions: of the tokenizer.
        stochastic_depth: the last block's rate; it grows from 0 at the first.
    """

    def __init__(
        self, config: ViTConfig, *, channels: int, kernel: int, convolutions: int, stochastic_depth: float
    ) -> None:
        super().__init__()
        self.config, self.num_features = config, config.width
        self.tokenizer = Tokenizer(channels, config.width, kernel=kernel, convolutions=convolutions)
        self.positions = nn.ModuleList([] if config.position == "none" else [layers.PositionTable(config)])
        self.drop = nn.Dropout(config.dropout)
        last = max(config.depth - 1, 1)
        rates = (stochastic_depth * index / last for index in range(config.depth))
        self.blocks = nn.ModuleList(CompactBlock(config, rate) for rate in rates)
        self.norm = nn.LayerNorm(config.width, eps=config.norm_eps)
        self.pool = nn.Linear(config.width, 1)
        self.head: nn.Module = nn.Linear(config.width, config.num_classes) if config.num_classes else nn.Identity()

    @torch.no_grad()
    def init_weights(self, generator: torch.Generator | None = None) -> None:
        """The authors': normal of variance 2 / fan-in for convolutions and of deviation 0.02 for linear layers, whose
        cut at 2 is never reached."""
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                layers.normal(module.weight, math.sqrt(2 / math.prod(module.weight.shape[1:])), generator)
            elif isinstance(module, nn.Linear):
                layers.normal(module.weight, 0.02, generator)
                layers.constant(module.bias, 0.0)
            elif isinstance(module, nn.LayerNorm):
                module.reset_parameters()
            elif isinstance(module, layers.PositionTable):
                module.init_weights(generator)

    def forward_features(self, x_BCHW: Tensor) -> Tensor:
        """The encoder's tokens x_BND, normalised."""
        x_BND = self.tokenizer(x_BCHW).flatten(2).transpose(1, 2)
        for table in self.positions:
            x_BND = x_BND + table().to(x_BND.dtype)
        x_BND = self.drop(x_BND)
        for block in self.blocks:
            x_BND = block(x_BND)
        return self.norm(x_BND)

    def features(self, x_BCHW: Tensor) -> Tensor:
        """Sequence pooling, x_BD: the mean of the tokens, weighted by a softmax over a number that each gives."""
        x_BND = self.forward_features(x_BCHW)
        weights_BN1 = self.pool(x_BND).softmax(dim=1).to(x_BND.dtype)
        return (weights_BN1.transpose(1, 2) @ x_BND).squeeze(1)

    def forward(self, x_BCHW: Tensor) -> Tensor:
        """Logits x_BK."""
        return self.head(self.features(x_BCHW))
