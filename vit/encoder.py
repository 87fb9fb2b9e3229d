"""The Transformer encoder: attention, MLP, pre-norm block (the paper's equations 2 and 3).

Shapes: B images, N tokens, D width, H heads, E head dimension.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vit import init
from vit.config import ViTConfig


def prefers_plain_attention(q_BHNE: Tensor) -> bool:
    """Whether matmul-softmax-matmul is the better choice than the fused kernel; the one place that decides.

    On CPU the fused kernel's backward in bfloat16 is up to seven times slower than three plain operations, and equal
    in float32; forward only, and on GPUs, the fused kernel is as fast or faster and keeps no N x N matrix.
    """
    return q_BHNE.device.type == "cpu" and torch.is_grad_enabled() and q_BHNE.requires_grad


def attend(q_BHNE: Tensor, k_BHNE: Tensor, v_BHNE: Tensor, *, bias_BHNN: Tensor | None, dropout: float) -> Tensor:
    """softmax(q k^T + bias) v -> x_BHNE. `q` is already scaled by 1 / sqrt(E)."""
    if prefers_plain_attention(q_BHNE):
        logits_BHNN = q_BHNE @ k_BHNE.transpose(-2, -1)
        if bias_BHNN is not None:
            logits_BHNN = logits_BHNN + bias_BHNN
        weights_BHNN = logits_BHNN.softmax(dim=-1).to(v_BHNE.dtype)
        if dropout:
            weights_BHNN = F.dropout(weights_BHNN, dropout)
        return weights_BHNN @ v_BHNE
    return F.scaled_dot_product_attention(q_BHNE, k_BHNE, v_BHNE, attn_mask=bias_BHNN, dropout_p=dropout, scale=1.0)


class Attention(nn.Module):
    """Multi-head self-attention with one fused projection to queries, keys and values (in that order)."""

    def __init__(self, config: ViTConfig) -> None:
        super().__init__()
        self.heads = config.heads
        self.head_dim = config.attention_width // config.heads
        self.dropout = config.dropout_weights
        self.qkv = nn.Linear(config.width, 3 * config.attention_width)
        self.proj = nn.Linear(config.attention_width, config.width)

    def init_weights(self, generator: torch.Generator | None) -> None:
        # Three separate draws: Xavier over the fused matrix would see a fan-out of 3 D and be sqrt(2) too small.
        for slice_ in self.qkv.weight.data.chunk(3):
            init.xavier_uniform(slice_, generator)
        init.xavier_uniform(self.proj.weight, generator)
        init.constant(self.qkv.bias, 0.0)
        init.constant(self.proj.bias, 0.0)

    def forward(self, x_BND: Tensor, relative: nn.Module | None = None) -> Tensor:
        B, N, _ = x_BND.shape
        qkv_3BHNE = self.qkv(x_BND).reshape(B, N, 3, self.heads, self.head_dim).permute(2, 0, 3, 1, 4)
        q_BHNE, k_BHNE, v_BHNE = qkv_3BHNE.unbind(0)
        q_BHNE = q_BHNE * self.head_dim**-0.5
        bias_BHNN = None if relative is None else relative(q_BHNE)
        dropout = self.dropout if self.training else 0.0
        x_BHNE = attend(q_BHNE, k_BHNE, v_BHNE, bias_BHNN=bias_BHNN, dropout=dropout)
        return self.proj(x_BHNE.transpose(1, 2).reshape(B, N, self.heads * self.head_dim))


class Mlp(nn.Module):
    """Two linear maps with GELU between them, applied to every token."""

    def __init__(self, config: ViTConfig) -> None:
        super().__init__()
        self.fc1 = nn.Linear(config.width, config.mlp_width)
        self.act = nn.GELU(approximate="tanh" if config.gelu == "tanh" else "none")
        self.drop = nn.Dropout(config.rate("mlp_hidden"))
        self.fc2 = nn.Linear(config.mlp_width, config.width)

    def init_weights(self, generator: torch.Generator | None) -> None:
        for linear in (self.fc1, self.fc2):
            init.xavier_uniform(linear.weight, generator)
            init.normal(linear.bias, 1e-6, generator)

    def forward(self, x_BND: Tensor) -> Tensor:
        return self.fc2(self.drop(self.act(self.fc1(x_BND))))


class Block(nn.Module):
    """x + attention(norm(x)), then x + mlp(norm(x))."""

    def __init__(self, config: ViTConfig) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(config.width, eps=config.norm_eps)
        self.attn = Attention(config)
        self.drop1 = nn.Dropout(config.rate("attention"))
        self.norm2 = nn.LayerNorm(config.width, eps=config.norm_eps)
        self.mlp = Mlp(config)
        self.drop2 = nn.Dropout(config.rate("mlp_out"))

    def init_weights(self, generator: torch.Generator | None) -> None:
        self.norm1.reset_parameters()
        self.attn.init_weights(generator)
        self.norm2.reset_parameters()
        self.mlp.init_weights(generator)

    def forward(self, x_BND: Tensor, relative: nn.Module | None = None) -> Tensor:
        x_BND = x_BND + self.drop1(self.attn(self.norm1(x_BND), relative))
        return x_BND + self.drop2(self.mlp(self.norm2(x_BND)))
