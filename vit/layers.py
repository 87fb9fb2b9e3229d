"""The parts of a Vision Transformer: initialisers, patch embedding, positions, and the encoder's blocks.

Initialisers are pure functions of a torch.Generator, whatever device the parameter is on: numbers are sampled on the
generator's device in float32 and copied, so a seed gives the same model on every machine. Blocks are pre-norm (the ViT
paper's equations 2 and 3).

Shapes: B images, C channels, H and W pixels, N tokens, D width, H heads, E head dimension, R rows and S columns of the
grid.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vit.config import ViTConfig, pair

TEMPERATURE = 10_000.0  # base of the frequencies of sine-cosine positions, as in MoCo v3 and big_vision


# -- initialisation ----------------------------------------------------------------------------------------------------


def allocate(module: nn.Module, device: torch.device) -> None:
    """Give a module uninitialised memory on the device, as `module.to_empty(device=device)` does, but without torch's
    function for shapes on the meta device, which loads SymPy and takes half a second in each process."""
    module._apply(lambda tensor: torch.empty(tensor.shape, dtype=tensor.dtype, device=device))


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
    """Fill a parameter with samples of N(0, std²). `generator`: None = torch's global one."""
    _fill(parameter, lambda t: nn.init.normal_(t, std=std, generator=generator), generator)


def xavier_uniform(parameter: Tensor, generator: torch.Generator | None) -> None:
    """Fill an (out, in) matrix, or a slice of one, with Xavier (Glorot) uniform samples. `generator`: None = torch's
    global one."""
    _fill(parameter, lambda t: nn.init.xavier_uniform_(t, generator=generator), generator)


def lecun_normal(parameter: Tensor, generator: torch.Generator | None) -> None:
    """Fill weights (out, in, ...) as flax does by default: normal of variance 1 / fan_in, truncated at two standard
    deviations. `generator`: None = torch's global one."""
    # 0.8796 is the standard deviation of a unit normal truncated at +-2, which jax.nn.initializers divides out.
    std = math.sqrt(1 / math.prod(parameter.shape[1:])) / 0.87962566103423978
    _fill(
        parameter,
        lambda t: nn.init.trunc_normal_(t, std=std, a=-2 * std, b=2 * std, generator=generator),
        generator,
    )


def constant(parameter: Tensor | None, value: float) -> None:
    """Fill a parameter with one value; do nothing if the parameter is None (the bias of a layer without bias)."""
    if parameter is not None:
        nn.init.constant_(parameter, value)


# -- tokens and positions ----------------------------------------------------------------------------------------------


def scaled(x_BCHW: Tensor) -> Tensor:
    """Convert uint8 pixels in [0, 255] to float32 in [-1, 1]; return other tensors as they are."""
    return x_BCHW.to(torch.float32).mul_(2.0 / 255.0).sub_(1.0) if x_BCHW.dtype == torch.uint8 else x_BCHW


class Patches(nn.Module):
    """Cuts x_BCHW (uint8 pixels or floats, in any memory format) into flattened patches x_BNP of the dtype asked for.

    The P values of a patch are in the order of a convolution's weights: channels, rows, columns.
    """

    compiles_alone = True  # compiled as one kernel, whose result a matrix product reads

    def __init__(self, patch: tuple[int, int]) -> None:
        super().__init__()
        self.patch = patch

    def forward(self, x_BCHW: Tensor, dtype: torch.dtype) -> Tensor:
        rows, columns = self.patch
        x_BCRhSw = scaled(x_BCHW).to(dtype).unflatten(3, (-1, columns)).unflatten(2, (-1, rows))
        return x_BCRhSw.permute(0, 2, 4, 1, 3, 5).flatten(3).flatten(1, 2)


class Embed(nn.Module):
    """The patch embedding x_BCHW -> x_BND: an optional convolutional stem, then a convolution whose kernel equals its
    stride.

    For a plain ViT this is the ViT paper's linear projection of flattened patches (its equation 1). It is computed as
    one matrix product, or as a convolution where sums must keep their order (see `keeps_order`).
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
        self.patches = Patches(patch)
        self.proj = nn.Conv2d(channels, config.width, patch, stride=patch)

    def init_weights(self, generator: torch.Generator | None) -> None:
        if self.backbone is not None:
            self.backbone.init_weights(generator)
        lecun_normal(self.proj.weight, generator)
        constant(self.proj.bias, 0.0)

    def forward(self, x_BCHW: Tensor) -> Tensor:
        weight_DCHW = self.proj.weight
        if self.backbone is None and not keeps_order(weight_DCHW):
            return F.linear(self.patches(x_BCHW, weight_DCHW.dtype), weight_DCHW.flatten(1), self.proj.bias)
        x_BCHW = scaled(x_BCHW)
        if self.backbone is not None:
            x_BCHW = self.backbone(x_BCHW)
        return self.proj(x_BCHW).flatten(2).transpose(1, 2)


class ConvStem(nn.Sequential):
    """A convolutional stem: convolution, BatchNorm and ReLU, repeated (Xiao et al. 2021; torchvision's
    `conv_stem_configs`)."""

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
                lecun_normal(module.weight, generator)
            elif isinstance(module, nn.BatchNorm2d):
                module.reset_parameters()


class PositionTable(nn.Module):
    """Position embeddings that are added to the tokens: a call returns x_1ND, with a row for a class token if there is
    one.

    Kinds: learned-1d is one learned vector per token; learned-2d is a learned vector per row and one per column, of
    half the width each, concatenated (the ViT paper's D.4); sincos-2d is a fixed sine-cosine table of unit scale. In
    the two 2-d kinds the class token gets zeros.
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
            normal(parameter, self.std, generator)
        self.fill_buffers()

    def fill_buffers(self) -> None:
        """Compute the sine-cosine table if this is a fixed one; needed after `to_empty`, which leaves it undefined."""
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
    """Relative positions: learned vectors for the offsets between tokens, used as extra keys (the ViT paper's D.4,
    after Shaw et al. 2018).

    They are 1-dimensional: the offset is the difference of positions in the flattened sequence, class token first.
    """

    offset: Tensor

    def __init__(self, config: ViTConfig) -> None:
        super().__init__()
        self.num_tokens, self.std = config.num_tokens, config.position_std
        self.weight = nn.Parameter(torch.empty(2 * self.num_tokens - 1, config.attention_width // config.heads))
        shape = (self.num_tokens, self.num_tokens)
        self.register_buffer("offset", torch.empty(shape, dtype=torch.long), persistent=False)

    def init_weights(self, generator: torch.Generator | None) -> None:
        normal(self.weight, self.std, generator)
        self.fill_buffers()

    def fill_buffers(self) -> None:
        """Compute the number of each pair's offset; needed after `to_empty`, which leaves these numbers undefined."""
        index = torch.arange(self.num_tokens, device=self.offset.device)
        self.offset.copy_(index[:, None] - index[None, :] + self.num_tokens - 1)

    def forward(self, q_BHNE: Tensor) -> Tensor:
        """Return bias_BHNN, to be added to the attention logits. The queries `q_BHNE` must already be scaled by
        1/sqrt(E)."""
        by_offset_BHNO = q_BHNE @ self.weight.t()
        index = self.offset[: q_BHNE.shape[2]].expand(*q_BHNE.shape[:2], -1, -1)
        return by_offset_BHNO.gather(-1, index)


def sincos_2d(grid: tuple[int, int], width: int) -> Tensor:
    """Return a fixed position table (1, N, D) for a grid of (rows, columns) of tokens: sin x, cos x, sin y and cos y at
    width / 4 frequencies each, as in big_vision and MoCo v3."""
    rows, columns = grid
    exponent = torch.arange(width // 4, dtype=torch.float64, device="cpu") / max(width // 4 - 1, 1)
    frequency = TEMPERATURE**-exponent
    y_N = torch.arange(rows, dtype=torch.float64, device="cpu").repeat_interleave(columns)
    x_N = torch.arange(columns, dtype=torch.float64, device="cpu").repeat(rows)
    angles = [x_N[:, None] * frequency, y_N[:, None] * frequency]
    return torch.cat([f(a) for a in angles for f in (torch.sin, torch.cos)], dim=1).float()[None]


# -- encoder -----------------------------------------------------------------------------------------------------------


def prefers_plain_attention(q_BHNE: Tensor) -> bool:
    """Return whether attention is computed as matmul, softmax and matmul instead of by the fused kernel.

    On a CPU the backward pass of the fused kernel is up to seven times slower in bfloat16 than three plain operations,
    and as fast in float32. Without a backward pass, and on GPUs, the fused kernel is at least as fast, and it keeps no
    N x N matrix.
    """
    return q_BHNE.device.type == "cpu" and torch.is_grad_enabled() and q_BHNE.requires_grad


def keeps_order(x: Tensor) -> bool:
    """Return whether layers given `x` compute every sum in one fixed order, so that results are equal to the last bit.

    They do so in float32 on a CPU, where committed results were computed, and on the meta device, where operations are
    only counted. Elsewhere unused outputs are not computed, which may change the last bit of the outputs that are.
    """
    return x.dtype == torch.float32 and x.device.type in ("cpu", "meta")


def attend(
    q_BHNE: Tensor, k_BHNE: Tensor, v_BHNE: Tensor, *, bias_BHNN: Tensor | None, dropout: float, scale: float = 1.0
) -> Tensor:
    """Return attention, softmax(scale q k^T + bias) v, as x_BHNE. There may be fewer queries than keys.

    Args:
        bias_BHNN: None = no bias.
        dropout: dropout probability of the attention weights.
        scale: 1 if `q` is already scaled by 1 / sqrt(E); fused kernels scale at no cost.
    """
    if prefers_plain_attention(q_BHNE):
        logits_BHNN = q_BHNE @ k_BHNE.transpose(-2, -1) if scale == 1.0 else scaled_product(q_BHNE, k_BHNE, scale)
        if bias_BHNN is not None:
            logits_BHNN = logits_BHNN + bias_BHNN
        weights_BHNN = logits_BHNN.softmax(dim=-1).to(v_BHNE.dtype)
        if dropout:
            weights_BHNN = F.dropout(weights_BHNN, dropout)
        return weights_BHNN @ v_BHNE
    return F.scaled_dot_product_attention(q_BHNE, k_BHNE, v_BHNE, attn_mask=bias_BHNN, dropout_p=dropout, scale=scale)


def scaled_product(q_BHNE: Tensor, k_BHNE: Tensor, scale: float) -> Tensor:
    """Return attention logits scale q k^T as x_BHNN. The matrix product applies the scale itself, so that neither the
    forward nor the backward pass multiplies the queries in an operation of its own."""
    q_bNE, k_bNE = q_BHNE.flatten(0, 1), k_BHNE.flatten(0, 1)
    ignored = q_BHNE.new_zeros(())
    return torch.baddbmm(ignored, q_bNE, k_bNE.mT, beta=0, alpha=scale).unflatten(0, q_BHNE.shape[:2])


class _Linear(torch.autograd.Function):
    """F.linear with a backward pass that sums the bias's gradient over the tokens of each image first, then over
    images. `Linear` says what this is good for."""

    @staticmethod
    def forward(x_BNI: Tensor, weight_OI: Tensor, bias_O: Tensor) -> Tensor:
        return F.linear(x_BNI, weight_OI, bias_O)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs[:2])

    @staticmethod
    def backward(ctx: Any, grad_BNO: Tensor) -> tuple[Tensor, Tensor, Tensor]:  # type: ignore[override]
        x_BNI, weight_OI = ctx.saved_tensors
        by_image_BO = grad_BNO.sum(-2, dtype=torch.promote_types(grad_BNO.dtype, torch.float32))
        weight = grad_BNO.flatten(0, -2).t() @ x_BNI.flatten(0, -2)
        return grad_BNO @ weight_OI, weight, by_image_BO.sum(0).to(grad_BNO.dtype)


def runs_on_cpu(x: Tensor) -> bool:
    """Return whether operations on `x` run one by one on a CPU, or are only counted on the meta device. Elsewhere
    operations are compiled for a GPU, and layers choose those that suit a GPU."""
    return x.device.type in ("cpu", "meta")


class Linear(nn.Linear):
    """nn.Linear on x_BND, whose bias gradient is summed in two steps (`_Linear`) on a GPU.

    On a GPU the compiler does the first sum in the kernel that computes the output's gradient; a single sum over all
    tokens would be a kernel of its own that reads that gradient again. On a CPU, where nothing is compiled, two sums
    would take longer than one.
    """

    def forward(self, x_BND: Tensor) -> Tensor:
        alone = self.bias is None or x_BND.dim() != 3
        plain = runs_on_cpu(x_BND) or not torch.is_grad_enabled() or torch.is_autocast_enabled(x_BND.device.type)
        return super().forward(x_BND) if plain or alone else _Linear.apply(x_BND, self.weight, self.bias)


class Attention(nn.Module):
    """Multi-head self-attention with one fused projection to queries, keys and values (in that order)."""

    def __init__(self, config: ViTConfig) -> None:
        super().__init__()
        self.heads = config.heads
        self.head_dim = config.attention_width // config.heads
        self.dropout = config.dropout_weights
        self.scale = self.head_dim**-0.5
        self.qkv = Linear(config.width, 3 * config.attention_width, bias=config.qkv_bias)
        self.proj = nn.Linear(config.attention_width, config.width)

    def init_weights(self, generator: torch.Generator | None) -> None:
        # The three parts are sampled separately: for the fused matrix Xavier would use a fan-out of 3 D, and its
        # weights would be too small by a factor of sqrt(2).
        for slice_ in self.qkv.weight.data.chunk(3):
            xavier_uniform(slice_, generator)
        xavier_uniform(self.proj.weight, generator)
        constant(self.qkv.bias, 0.0)
        constant(self.proj.bias, 0.0)

    def project(self, x_BND: Tensor, *, scaled: bool = True) -> tuple[Tensor, Tensor, Tensor]:
        """Return the queries, keys and values of all tokens, each x_BHNE; with `scaled`, queries are multiplied by
        1/sqrt(E)."""
        # split along the last axis, so that the gradients are joined in the shape in which they are summed next
        parts = (part_BND.unflatten(2, (self.heads, -1)) for part_BND in self.qkv(x_BND).chunk(3, dim=2))
        q_BHNE, k_BHNE, v_BHNE = (part_BNHE.transpose(1, 2) for part_BNHE in parts)
        return q_BHNE * self.scale if scaled else q_BHNE, k_BHNE, v_BHNE

    def project_first(self, x_BND: Tensor, number: int) -> tuple[Tensor, Tensor, Tensor]:
        """Return the queries of the first `number` tokens, not scaled, and the keys and values of all tokens, each
        x_BHNE."""
        width = self.heads * self.head_dim
        weight_q, weight_kv = self.qkv.weight.split((width, 2 * width))
        bias_q, bias_kv = (None, None) if self.qkv.bias is None else self.qkv.bias.split((width, 2 * width))
        q_BnD = F.linear(x_BND[:, :number], weight_q, bias_q)
        kv_BN2HE = F.linear(x_BND, weight_kv, bias_kv).unflatten(2, (2, self.heads, self.head_dim))
        k_BHNE, v_BHNE = kv_BN2HE.permute(2, 0, 3, 1, 4).unbind(0)
        return q_BnD.unflatten(2, (self.heads, self.head_dim)).transpose(1, 2), k_BHNE, v_BHNE

    def output(self, x_BHNE: Tensor) -> Tensor:
        """Join the results of all heads, x_BHNE, and project them to x_BND."""
        return self.proj(x_BHNE.transpose(1, 2).flatten(2))

    def forward(self, x_BND: Tensor, relative: nn.Module | None = None, first: int | None = None) -> Tensor:
        """Return the attention output x_BND.

        Args:
            relative: module from scaled queries to a bias on the attention logits (`RelativePosition`); None = no bias.
            first: number of tokens, from the start, whose output is returned; None = all.
        """
        outside = relative is not None or keeps_order(x_BND)  # scale queries before attention, in a pass of its own
        if first is None:
            q_BHNE, k_BHNE, v_BHNE = self.project(x_BND, scaled=outside)
        else:
            q_BHNE, k_BHNE, v_BHNE = self.project_first(x_BND, first)
            q_BHNE = q_BHNE * self.scale if outside else q_BHNE
        bias_BHNN = None if relative is None else relative(q_BHNE)
        x_BHNE = attend(
            q_BHNE,
            k_BHNE,
            v_BHNE,
            bias_BHNN=bias_BHNN,
            dropout=self.dropout if self.training else 0.0,
            scale=1.0 if outside else self.scale,
        )
        return self.output(x_BHNE)


class Mlp(nn.Module):
    """Two linear maps with GELU between them, applied to every token."""

    def __init__(self, config: ViTConfig) -> None:
        super().__init__()
        self.fc1 = Linear(config.width, config.mlp_width)
        self.act = nn.GELU(approximate="tanh" if config.gelu == "tanh" else "none")
        self.drop = nn.Dropout(config.dropout)
        self.fc2 = nn.Linear(config.mlp_width, config.width)

    def init_weights(self, generator: torch.Generator | None) -> None:
        for linear in (self.fc1, self.fc2):
            xavier_uniform(linear.weight, generator)
            normal(linear.bias, 1e-6, generator)

    def forward(self, x_BND: Tensor) -> Tensor:
        return self.fc2(self.drop(self.act(self.fc1(x_BND))))


class Block(nn.Module):
    """A pre-norm encoder block: x + attention(norm(x)), then x + mlp(norm(x))."""

    def __init__(self, config: ViTConfig) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(config.width, eps=config.norm_eps)
        self.attn = Attention(config)
        self.drop1 = nn.Dropout(config.dropout)
        self.norm2 = nn.LayerNorm(config.width, eps=config.norm_eps)
        self.mlp = Mlp(config)
        self.drop2 = nn.Dropout(config.dropout)

    def init_weights(self, generator: torch.Generator | None) -> None:
        self.norm1.reset_parameters()
        self.attn.init_weights(generator)
        self.norm2.reset_parameters()
        self.mlp.init_weights(generator)

    def forward(self, x_BND: Tensor, relative: nn.Module | None = None, first: int | None = None) -> Tensor:
        """Return the block's output x_BND.

        Args:
            relative: module from scaled queries to a bias on the attention logits (`RelativePosition`); None = no bias.
            first: number of tokens, from the start, whose output is returned; they attend to all. None = all.
        """
        attended_BND = self.attn(self.norm1(x_BND), relative, first)
        x_BND = (x_BND if first is None else x_BND[:, :first]) + self.drop1(attended_BND)
        return x_BND + self.drop2(self.mlp(self.norm2(x_BND)))


class AxialBlock(nn.Module):
    """Two encoder blocks in sequence, one with attention along the rows of the token grid, one along its columns (the
    ViT paper's D.6)."""

    def __init__(self, config: ViTConfig) -> None:
        super().__init__()
        self.grid = config.grid
        self.row, self.column = Block(config), Block(config)

    def init_weights(self, generator: torch.Generator | None) -> None:
        self.row.init_weights(generator)
        self.column.init_weights(generator)

    def forward(self, x_BND: Tensor, relative: nn.Module | None = None) -> Tensor:
        x_BRSD = along(self.row, x_BND.unflatten(1, self.grid))
        return along(self.column, x_BRSD.transpose(1, 2)).transpose(1, 2).flatten(1, 2)


def along(block: nn.Module, x_BRSD: Tensor) -> Tensor:
    """Apply an encoder block to each row x_SD of a grid of tokens separately; return x_BRSD."""
    return block(x_BRSD.flatten(0, 1)).unflatten(0, x_BRSD.shape[:2])
