"""The small ResNets of He et al. 2016, section 4.2: two 3x3 convolutions per block, three stages, average pooling.

Sources: He et al.'s table of sizes for CIFAR-10, and their option A for shortcuts between sizes (every second pixel,
and zeros for new channels). Names of weights are those of torchvision's `BasicBlock`, with which tests compare. Shapes:
B images, C channels, H and W pixels.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vit import layers

Norm = Callable[[int], nn.Module]


def group_norm(channels: int) -> nn.GroupNorm:
    """Return a GroupNorm of four groups, or of fewer groups with at least four channels each, because the mean and
    variance of fewer channels would say too little."""
    return nn.GroupNorm(max(1, min(4, channels // 4)), channels)


NORMS: dict[str, Norm] = {"batch": nn.BatchNorm2d, "group": group_norm}
SHORTCUTS = ("pad", "conv")


def conv3x3(inputs: int, outputs: int, *, stride: int = 1) -> nn.Conv2d:
    """Return a padded 3x3 convolution, which changes the size of a map by its stride only. It has no bias, because a
    norm follows."""
    return nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False)


class Pad(nn.Module):
    """He et al.'s shortcut of option A, without parameters: it takes every `stride`-th pixel, and adds `more` channels
    of zeros."""

    def __init__(self, more: int, *, stride: int) -> None:
        super().__init__()
        self.more, self.stride = more, stride

    def forward(self, x_BCHW: Tensor) -> Tensor:
        x_BCHW = x_BCHW[..., :: self.stride, :: self.stride]
        return F.pad(x_BCHW, (0, 0, 0, 0, self.more // 2, self.more - self.more // 2))


class BasicBlock(nn.Module):
    """A basic residual block: x + norm(conv(relu(norm(conv(x))))), then ReLU; the first convolution has the stride."""

    def __init__(self, inputs: int, outputs: int, *, stride: int, norm: Norm, shortcut: str) -> None:
        super().__init__()
        self.conv1 = conv3x3(inputs, outputs, stride=stride)
        self.bn1 = norm(outputs)
        self.conv2 = conv3x3(outputs, outputs)
        self.bn2 = norm(outputs)
        self.downsample: nn.Module | None = None
        if stride != 1 or inputs != outputs:
            by_conv = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride=stride, bias=False), norm(outputs))
            self.downsample = by_conv if shortcut == "conv" else Pad(outputs - inputs, stride=stride)

    def forward(self, x_BCHW: Tensor) -> Tensor:
        shortcut_BCHW = x_BCHW if self.downsample is None else self.downsample(x_BCHW)
        y_BCHW = F.relu(self.bn1(self.conv1(x_BCHW)), inplace=True)
        return F.relu(self.bn2(self.conv2(y_BCHW)) + shortcut_BCHW, inplace=True)


class BasicResNet(nn.Module):
    """A small ResNet from images x_BCHW to class logits x_BK.

    Args:
        blocks: number of blocks in each stage.
        widths: channels of each stage; the stem has as many as the first stage.
        strides: stride of the stem, then of each stage.
        channels: channels of the images.
        num_classes: number of classes, K; 0 = no classifier, features are returned.
        norm: a name in NORMS.
        shortcut: a name in SHORTCUTS: option A (`pad`) or B (`conv`) of He et al., between maps of different size.
    """

    def __init__(
        self,
        *,
        blocks: int,
        widths: Sequence[int],
        strides: Sequence[int],
        channels: int,
        num_classes: int,
        norm: str = "batch",
        shortcut: str = "pad",
    ) -> None:
        super().__init__()
        make: dict[str, Any] = {"norm": NORMS[norm], "shortcut": shortcut}
        self.conv1 = conv3x3(channels, widths[0], stride=strides[0])
        self.bn1 = NORMS[norm](widths[0])
        self.stages = nn.Sequential()
        inputs = widths[0]
        for outputs, stride in zip(widths, strides[1:], strict=True):
            first = BasicBlock(inputs, outputs, stride=stride, **make)
            others = (BasicBlock(outputs, outputs, stride=1, **make) for _ in range(blocks - 1))
            self.stages.append(nn.Sequential(first, *others))
            inputs = outputs
        self.head: nn.Module = nn.Linear(inputs, num_classes) if num_classes else nn.Identity()
        self.num_features, self.stride = inputs, math.prod(strides)

    @torch.no_grad()
    def init_weights(self, generator: torch.Generator | None = None) -> None:
        """Initialise convolutions as He et al. 2015 (normal, variance 2 / fan-out, as in their code), and the
        classifier with variance 1 / fan-in, because no ReLU follows it. `generator`: None = torch's global one."""
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                fan_out = module.out_channels * math.prod(module.kernel_size)
                layers.normal(module.weight, math.sqrt(2 / fan_out), generator)
            elif isinstance(module, nn.Linear):
                layers.lecun_normal(module.weight, generator)
                layers.constant(module.bias, 0.0)
            elif isinstance(module, nn.BatchNorm2d | nn.GroupNorm):
                module.reset_parameters()

    def forward_features(self, x_BCHW: Tensor) -> Tensor:
        """Return the last stage's feature map, x_BCHW."""
        return self.stages(F.relu(self.bn1(self.conv1(x_BCHW)), inplace=True))

    def features(self, x_BCHW: Tensor) -> Tensor:
        """Return the average over the last feature map's pixels, x_BC: the classifier's input."""
        return self.forward_features(x_BCHW).mean((2, 3))

    def forward(self, x_BCHW: Tensor) -> Tensor:
        """Return class logits x_BK, or the features x_BC without a classifier."""
        return self.head(self.features(x_BCHW))
