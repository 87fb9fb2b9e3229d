"""From an image to tokens, and position signals.

Shapes: B images, C channels, H and W pixels, N tokens, D width, E head dimension, R rows and S columns of the grid.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from vit import init
from vit.config import ViTConfig, pair

TEMPERATURE = 10_000.0  # of the sine-cosine table, as in MoCo v3 and big_vision


class Embed(nn.Module):
    """x_BCHW -> x_BND: an optional feature extractor, then a convolution whose kernel equals its stride.

    For a plain ViT that is the paper's linear projection of flattened patches (its equation 1).
    """

    backbone: Any  # None, or a module with `stride`, `out_channels`, `init_weights` and `checkpoint_entries`

    def __init__(self, config: ViTConfig, backbone: nn.Module | None = None) -> None:
        super().__init__()
        patch = pair(config.patch_size)
        channels = config.channels
        self.backbone = backbone
        if config.stem == "conv":
            self.backbone = ConvStem(channels, config.conv_stem)
        if self.backbone is not None:
            stride, channels = self.backbone.stride, self.backbone.out_channels
            if any(p % stride for p in patch):
                raise ValueError(f"the stem's stride {stride} does not divide the total down-sampling {patch}")
            patch = (patch[0] // stride, patch[1] // stride)
        self.proj = nn.Conv2d(channels, config.width, patch, stride=patch)

    def init_weights(self, generator: torch.Generator | None) -> None:
        if self.backbone is not None:
            self.backbone.init_weights(generator)
        init.lecun_normal(self.proj.weight, generator)
        init.constant(self.proj.bias, 0.0)

    def forward(self, x_BCHW: Tensor) -> Tensor:
        if self.backbone is not None:
            x_BCHW = self.backbone(x_BCHW)
        return self.proj(x_BCHW).flatten(2).transpose(1, 2)


class ConvStem(nn.Sequential):
    """Convolution, BatchNorm, ReLU, repeated: Xiao et al. 2021, as torchvision's `conv_stem_configs`."""

    def __init__(self, channels: int, layers: tuple[tuple[int, int, int], ...]) -> None:
        blocks: list[nn.Module] = []
        self_stride = 1
        for width, kernel, stride in layers:
            conv = nn.Conv2d(channels, width, kernel, stride=stride, padding=(kernel - 1) // 2, bias=False)
            blocks.append(nn.Sequential(conv, nn.BatchNorm2d(width), nn.ReLU(inplace=True)))
            channels, self_stride = width, self_stride * stride
        super().__init__(*blocks)
        self.out_channels, self.stride = channels, self_stride

    def init_weights(self, generator: torch.Generator | None) -> None:
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                init.lecun_normal(module.weight, generator)
            elif isinstance(module, nn.BatchNorm2d):
                module.reset_parameters()


class PositionTable(nn.Module):
    """A table that is added to the tokens: `table()` -> x_1ND, with a row for the class token where there is one.

    learned-1d: one learned vector per token. learned-2d: a row and a column vector of half the width each,
    concatenated (the paper's D.4). sincos-2d: fixed, unit scale. The class token gets zeros in the two 2-d kinds.
    """

    weight: Tensor
    rows: Tensor
    columns: Tensor
    fixed: Tensor

    def __init__(self, config: ViTConfig) -> None:
        super().__init__()
        self.kind, self.std = config.position, config.position_std
        self.grid, self.width, self.has_cls = config.grid, config.width, config.has_cls
        rows, columns = self.grid
        if self.kind == "learned-1d":
            extra = int(config.has_cls and config.position_on_cls)
            self.weight = nn.Parameter(torch.empty(1, rows * columns + extra, self.width))
        elif self.kind == "learned-2d":
            self.rows = nn.Parameter(torch.empty(rows, self.width // 2))
            self.columns = nn.Parameter(torch.empty(columns, self.width - self.width // 2))
        else:
            self.register_buffer("fixed", torch.empty(1, rows * columns, self.width), persistent=False)

    def init_weights(self, generator: torch.Generator | None) -> None:
        for parameter in self.parameters():
            init.normal(parameter, self.std, generator)
        self.fill_buffers()

    def fill_buffers(self) -> None:
        """Compute what is not learned; needed after `to_empty`."""
        if self.kind == "sincos-2d":
            self.fixed.copy_(sincos_2d(self.grid, self.width))

    def forward(self) -> Tensor:
        if self.kind == "learned-1d":
            table_1ND = self.weight
        elif self.kind == "learned-2d":
            rows, columns = self.grid
            row_RSD = self.rows[:, None, :].expand(rows, columns, -1)
            column_RSD = self.columns[None, :, :].expand(rows, columns, -1)
            table_1ND = torch.cat([column_RSD, row_RSD], dim=-1).reshape(1, rows * columns, self.width)
        else:
            table_1ND = self.fixed
        missing = int(self.has_cls) + self.grid[0] * self.grid[1] - table_1ND.shape[1]
        return nn.functional.pad(table_1ND, (0, 0, missing, 0)) if missing else table_1ND


class RelativePosition(nn.Module):
    """Learned vectors for the offsets between tokens, used as extra keys (the paper's D.4, after Shaw et al. 2018).

    1-dimensional: the offset is the difference of positions in the flattened sequence, class token first.
    """

    offset: Tensor

    def __init__(self, config: ViTConfig) -> None:
        super().__init__()
        self.num_tokens, self.std = config.num_tokens, config.position_std
        self.weight = nn.Parameter(torch.empty(2 * self.num_tokens - 1, config.attention_width // config.heads))
        shape = (self.num_tokens, self.num_tokens)
        self.register_buffer("offset", torch.empty(shape, dtype=torch.long), persistent=False)

    def init_weights(self, generator: torch.Generator | None) -> None:
        init.normal(self.weight, self.std, generator)
        self.fill_buffers()

    def fill_buffers(self) -> None:
        """Compute what is not learned; needed after `to_empty`."""
        index = torch.arange(self.num_tokens, device=self.offset.device)
        self.offset.copy_(index[:, None] - index[None, :] + self.num_tokens - 1)

    def forward(self, q_BHNE: Tensor) -> Tensor:
        """Logits to add to those of the content: bias_BHNN. `q_BHNE` is already scaled."""
        by_offset_BHNO = q_BHNE @ self.weight.t()
        index = self.offset.expand(*q_BHNE.shape[:2], -1, -1)
        return by_offset_BHNO.gather(-1, index)


def sincos_2d(grid: tuple[int, int], width: int) -> Tensor:
    """Fixed table of shape (1, N, D): sin x, cos x, sin y, cos y over width / 4 frequencies (big_vision, MoCo v3)."""
    rows, columns = grid
    exponent = torch.arange(width // 4, dtype=torch.float64, device="cpu") / max(width // 4 - 1, 1)
    frequency = TEMPERATURE**-exponent
    y_N = torch.arange(rows, dtype=torch.float64, device="cpu").repeat_interleave(columns)
    x_N = torch.arange(columns, dtype=torch.float64, device="cpu").repeat(rows)
    angles = [x_N[:, None] * frequency, y_N[:, None] * frequency]
    return torch.cat([f(a) for a in angles for f in (torch.sin, torch.cos)], dim=1).float()[None]
