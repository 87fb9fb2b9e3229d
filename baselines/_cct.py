"""Compact Convolutional Transformers (Hassani et al. 2021): convolutions make the tokens, and attention pools them.

Sources: section 3 of their paper, and their code, with whose logits a test compares. Attention, MLP and positions are
those of vit/layers.py; each class says what differs from a ViT's blocks. Shapes: B images, C channels, H and W pixels,
N tokens, D width.
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
    """Return the stride of a convolution of the tokenizer, by its kernel size (3, 5 or 7): 1, or 2 for 7."""
    return max(1, kernel // 2 - 1)


def pixels_per_token(*, kernel: int, convolutions: int) -> int:
    """Return the tokenizer's total stride in pixels, by kernel size and number of its convolutions, each of which is
    followed by a pooling of stride 2."""
    return (2 * stride_of(kernel)) ** convolutions


class Tokenizer(nn.Sequential):
    """The tokenizer from x_BCHW to a feature map: convolution without bias, ReLU and max-pooling of stride 2, repeated
    `convolutions` times with `kernel` x `kernel` pixels; the last gives `width` channels."""

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
    """An encoder block: x = norm(x + attention(norm(x))), then x + mlp(x). The norm before the MLP is in the residual
    stream, as in the authors' code. `drop_path` is the probability of stochastic depth (see `path`)."""

    def __init__(self, config: ViTConfig, drop_path: float) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(config.width, eps=config.norm_eps)
        self.attn = layers.Attention(config)
        self.norm2 = nn.LayerNorm(config.width, eps=config.norm_eps)
        self.mlp = layers.Mlp(config)
        self.drop = nn.Dropout(config.dropout)
        self.drop_path = drop_path

    def path(self, y_BND: Tensor) -> Tensor:
        """Apply stochastic depth to y_BND, which a layer adds to the residual stream: in training, set it to zero for
        some images of a batch, at random, and scale it up for the others."""
        if not self.training or not self.drop_path:
            return y_BND
        return y_BND * F.dropout(y_BND.new_ones(len(y_BND), 1, 1), self.drop_path)

    def forward(self, x_BND: Tensor) -> Tensor:
        x_BND = self.norm2(x_BND + self.path(self.drop(self.attn(self.norm1(x_BND)))))
        return x_BND + self.path(self.drop(self.mlp(x_BND)))


class CCT(nn.Module):
    """A Compact Convolutional Transformer from images x_BCHW to class logits x_BK.

    Args:
        config: configuration of the encoder; its patch size is the tokenizer's total stride.
        channels: channels of the images.
        kernel, convolutions: kernel size and number of the tokenizer's convolutions.
        stochastic_depth: probability that the last block is skipped in training; for the blocks before, it grows
            linearly from 0 at the first.
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
        """Initialise as the authors do: convolutions are normal with variance 2 / fan-in, linear layers normal with
        standard deviation 0.02 (the authors truncate it at 2, which never takes effect). `generator`: None = torch's
        global one."""
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
        """Return the encoder's tokens x_BND after the last normalisation."""
        x_BND = self.tokenizer(x_BCHW).flatten(2).transpose(1, 2)
        for table in self.positions:
            x_BND = x_BND + table().to(x_BND.dtype)
        x_BND = self.drop(x_BND)
        for block in self.blocks:
            x_BND = block(x_BND)
        return self.norm(x_BND)

    def features(self, x_BCHW: Tensor) -> Tensor:
        """Return the classifier's input x_BD by sequence pooling: the mean of the tokens, weighted by the softmax over
        tokens of a linear score of each token."""
        x_BND = self.forward_features(x_BCHW)
        weights_BN1 = self.pool(x_BND).softmax(dim=1).to(x_BND.dtype)
        return (weights_BN1.transpose(1, 2) @ x_BND).squeeze(1)

    def forward(self, x_BCHW: Tensor) -> Tensor:
        """Return class logits x_BK."""
        return self.head(self.features(x_BCHW))
