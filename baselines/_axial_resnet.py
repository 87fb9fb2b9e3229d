"""The network of the family `baselines/axial_resnet.py`. Shapes: B images, C channels, H and W pixels; N lines of L
pixels (rows of all images), h heads of width E."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from baselines._resnet import SMALLEST_GROUP, SMALLEST_NARROW_GROUP, GroupNorm, Layer, ResNet, StdConv
from vit import layers


class LineAttention(nn.Module):
    """Self-attention among the pixels of each row of a feature map, x_BCHW -> x_BCHW; queries and keys have half as
    many channels as values.

    The logit of pixels i and j, with queries q and keys k, is q_i k_j + q_i a[i − j] + k_j b[i − j] before scaling; the
    value that i takes from j is v_j + c[i − j]. Heads share the learned vectors a, b and c.

    Args:
        length: pixels in a row, L.
        conv: makes a convolution from (channels, new channels, kernel size).
        norm: makes a normalisation from (channels, relu=…).
    """

    def __init__(self, channels: int, length: int, *, heads: int, conv: Layer, norm: Layer) -> None:
        super().__init__()
        self.heads, self.length = heads, length
        self.parts = (channels // 2, channels // 2, channels)  # channels of queries, keys and values
        self.qkv = conv(channels, sum(self.parts), 1)
        self.norm_in = norm(sum(self.parts), relu=False)
        of_head = [part // heads for part in self.parts]
        self.scale = of_head[0] ** -0.5
        self.by_query, self.by_key, self.by_value = (
            nn.Parameter(torch.empty(2 * length - 1, width)) for width in of_head
        )
        self.norm_out = norm(channels, relu=False)

    def init_weights(self, generator: torch.Generator | None) -> None:
        """Initialise the learned vectors a, b and c with an expected squared length of 1, as in the authors' code. The
        convolution and the norms are initialised by the ResNet. `generator`: None = torch's global one."""
        for table in (self.by_query, self.by_key, self.by_value):
            layers.normal(table, table.shape[1] ** -0.5, generator)

    def forward(self, x_BCHW: Tensor) -> Tensor:
        rows = x_BCHW.shape[2]
        q_NhLE, k_NhLE, v_NhLE = (
            part_BCHW.unflatten(1, (self.heads, -1)).permute(0, 3, 1, 4, 2).flatten(0, 1)
            for part_BCHW in self.norm_in(self.qkv(x_BCHW)).split(self.parts, dim=1)
        )
        place_L = torch.arange(self.length, device=x_BCHW.device)
        offset_LL = place_L[:, None] - place_L[None, :] + self.length - 1
        a_LLE, b_LLE, c_LLE = (table[offset_LL] for table in (self.by_query, self.by_key, self.by_value))
        sums_NhLL = (
            q_NhLE @ k_NhLE.mT + _at_each_place(q_NhLE, a_LLE.mT) + _at_each_place(k_NhLE, b_LLE.permute(1, 2, 0)).mT
        )
        weights_NhLL = (self.scale * sums_NhLL).softmax(dim=-1).to(v_NhLE.dtype)
        y_NhLE = weights_NhLL @ v_NhLE + _at_each_place(weights_NhLL, c_LLE.to(v_NhLE.dtype))
        y_BCHW = y_NhLE.unflatten(0, (-1, rows)).permute(0, 2, 4, 1, 3).flatten(1, 2)
        return self.norm_out(y_BCHW)


def _at_each_place(x_NhLE: Tensor, matrices_LEF: Tensor) -> Tensor:
    """Multiply the vectors at each of L positions by the matrix of that position; return x_NhLF. It is written as one
    matrix product, because fvcore counts the operations of an einsum to four digits only."""
    x_LME = x_NhLE.permute(2, 0, 1, 3).flatten(1, 2)
    return (x_LME @ matrices_LEF).unflatten(1, x_NhLE.shape[:2]).permute(1, 2, 0, 3)


class AxialAttention(nn.Module):
    """Attention along rows, then along columns, of a feature map whose (height, width) is `grid`; then, for stride 2,
    average pooling of 2x2 pixels."""

    def __init__(self, channels: int, grid: tuple[int, int], *, stride: int, **parts: Any) -> None:
        super().__init__()
        height, width = grid
        self.row = LineAttention(channels, width, **parts)
        self.column = LineAttention(channels, height, **parts)
        self.pool = nn.AvgPool2d(stride, ceil_mode=True) if stride > 1 else nn.Identity()

    def forward(self, x_BCHW: Tensor) -> Tensor:
        return self.pool(self.column(self.row(x_BCHW).mT).mT)


class AxialResNet(ResNet):
    """A BiT ResNet whose 3x3 convolutions are replaced by axial attention.

    Args:
        blocks, width, channels, num_classes, small_stem: arguments of `ResNet`.
        image_size: (height, width) in pixels that every image must have.
        heads: number of heads of each attention.
    """

    def __init__(
        self,
        blocks: Sequence[int],
        *,
        width: float,
        channels: int,
        num_classes: int,
        small_stem: int | None,
        image_size: tuple[int, int],
        heads: int,
    ) -> None:
        sizes: dict[str, Any] = {"width": width, "channels": channels, "num_classes": num_classes}
        super().__init__(blocks, small_stem=small_stem, preact=True, **sizes)
        smallest = SMALLEST_GROUP if width >= 1 else SMALLEST_NARROW_GROUP
        parts: dict[str, Any] = {"heads": heads, "conv": StdConv, "norm": partial(GroupNorm, smallest=smallest)}
        rows, columns = (-(-side // (small_stem or 4)) for side in image_size)
        stage: Any
        for number, stage in enumerate(self.stages):
            for place, block in enumerate(stage.blocks):
                stride = 2 if number and not place else 1
                block.conv2 = AxialAttention(block.conv2.in_channels, (rows, columns), stride=stride, **parts)
                rows, columns = -(-rows // stride), -(-columns // stride)

    @torch.no_grad()
    def init_weights(self, generator: torch.Generator | None = None) -> None:
        super().init_weights(generator)
        for module in self.modules():
            if isinstance(module, LineAttention):
                module.init_weights(generator)
