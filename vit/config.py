"""Configurations of Vision Transformers: the class, the table of variants and the grammar of names. Imports no torch.

Sources of the variants: Table 1 of the ViT paper (B, L, H), Touvron et al. 2021 / AugReg (Ti, S), Zhai et al. 2022 (g,
G), the ViT paper's Figures 4 (b) and 8 (L-8), Hassani et al. 2021 (Lite-2 ... Lite-7: ViT-Lite of Compact
Transformers). The variants `atto` ... `mini` are ours, for studies of 28-32 px images on a CPU.
"""

from __future__ import annotations

import dataclasses
import math
import re
from dataclasses import dataclass
from typing import Any, Literal

Pooling = Literal["cls", "mean", "tokens"]
Position = Literal["none", "learned-1d", "learned-2d", "sincos-2d", "relative"]
PositionAt = Literal["stem", "every-layer", "shared"]
Size = int | tuple[int, int]

CHOICES = {
    "pooling": ("cls", "mean", "tokens"),
    "position": ("none", "learned-1d", "learned-2d", "sincos-2d", "relative"),
    "position_at": ("stem", "every-layer", "shared"),
    "head": ("linear", "mlp", "masked"),
    "masked_target": ("mean", "small", "pixels"),
    "stem": ("patch", "conv", "resnet"),
    "attention": ("full", "axial"),
    "gelu": ("tanh", "exact"),
}


def pair(size: Size) -> tuple[int, int]:
    """Return a size as (height, width); one number means a square."""
    return (size, size) if isinstance(size, int) else (int(size[0]), int(size[1]))


@dataclass(frozen=True, kw_only=True)
class ViTConfig:
    """The configuration of one Vision Transformer. Sizes are (height, width) in pixels; a single int means a square.

    Args:
        patch_size: total down-sampling from pixels to tokens, whatever the stem: the number in the ViT paper's names.
        channels: colour channels of the images.
        num_classes: outputs of the classifier; 0 = no classifier, the model returns features.
        width: size of a token's vector.
        depth: number of encoder blocks.
        mlp_width: size of the hidden layer in each block's MLP.
        head_dim: width of one attention head; None = width / heads. It need not divide the width.
        qkv_bias: whether queries, keys and values have a bias.
        pooling: the head's input: the class token (`cls`), the mean of the patch tokens (`mean`), or all patch tokens
            concatenated (`tokens`), for networks too small to gather the information of 16 tokens in one.
        cls_token: whether there is a class token; None = only if pooling is `cls`.
        norm_after_pool: whether the last LayerNorm comes after pooling instead of before.
        position: kind of position information (see vit/layers.py). `relative` adds query-dependent logits in every
            attention layer.
        position_at: where positions are added: once at the stem, at each layer with its own table (`every-layer`), or
            at each layer with one common table (`shared`). For `relative`, `shared` means one table for all layers,
            otherwise each layer has its own.
        position_on_cls: for learned-1d: whether the table has a row for the class token (the paper) or not
            (big_vision).
        position_std: standard deviation of a learned table at initialisation.
        attention: `full` among all tokens; `axial`: each block becomes one along rows, then one along columns (the
            paper's D.6).
        head: `linear` is a linear classifier; `mlp` puts a hidden layer with tanh before it (the paper's, at
            pre-training only); `masked` predicts the colours of corrupted patches instead of classes (vit/masked.py).
        masked_target: what the masked head predicts of a patch: the mean colour (`mean`), 4 x 4 colours (`small`), or
            its pixels (appendix B.1.2).
        head_width: width of the mlp head's hidden layer ("representation size"); None = width.
        head_bias: initial value of the classifier's bias (-10 for sigmoid pre-training on many classes).
        stem: `patch` (one linear map), `conv` (see conv_stem), or `resnet` (a backbone that is passed to the model).
        conv_stem: (channels, kernel, stride) of each convolution with BatchNorm and ReLU before the projection; () = a
            3x3 convolution of stride 2 for every factor of 2 in the patch size, with channels that double from layer to
            layer and end at the width (Xiao et al. 2021).
        dropout: dropout probability after positions are added, after attention, within the MLP and after it, as in the
            official code.
        dropout_weights: dropout probability of the attention weights; the official code never uses it.
        gelu: `tanh` as in the official JAX code, `exact` (erf) as in timm and torchvision.
        norm_eps: epsilon of every LayerNorm.
    """

    image_size: Size
    patch_size: Size
    channels: int
    num_classes: int
    width: int
    depth: int
    heads: int
    mlp_width: int
    head_dim: int | None = None
    qkv_bias: bool = True
    pooling: Pooling = "cls"
    cls_token: bool | None = None
    norm_after_pool: bool = False
    position: Position = "learned-1d"
    position_at: PositionAt = "stem"
    position_on_cls: bool = True
    position_std: float = 0.02
    attention: Literal["full", "axial"] = "full"
    head: Literal["linear", "mlp", "masked"] = "linear"
    masked_target: Literal["mean", "small", "pixels"] = "mean"
    head_width: int | None = None
    head_bias: float = 0.0
    stem: Literal["patch", "conv", "resnet"] = "patch"
    conv_stem: tuple[tuple[int, int, int], ...] = ()
    dropout: float = 0.0
    dropout_weights: float = 0.0
    gelu: Literal["tanh", "exact"] = "tanh"
    norm_eps: float = 1e-6

    def __post_init__(self) -> None:
        object.__setattr__(self, "image_size", pair(self.image_size))
        object.__setattr__(self, "patch_size", pair(self.patch_size))
        for field, allowed in CHOICES.items():
            if getattr(self, field) not in allowed:
                raise ValueError(f"{field}={getattr(self, field)!r} is not one of {', '.join(allowed)}")
        for field in ("width", "depth", "heads", "mlp_width", "head_dim", "head_width"):
            value = getattr(self, field)
            if value is not None and (not isinstance(value, int) or value < 1):
                raise ValueError(f"{field}={value!r} is not a whole number of at least 1")
        for field in ("dropout", "dropout_weights"):
            value = getattr(self, field)
            if not (isinstance(value, int | float) and 0 <= value < 1):
                raise ValueError(f"{field}={value!r} is not a number from 0 to below 1")
        for field in ("position_std", "head_bias", "norm_eps"):
            if not isinstance(value := getattr(self, field), int | float) or not math.isfinite(value):
                raise ValueError(f"{field}={value!r} is not a number")
        for field in ("qkv_bias", "cls_token", "norm_after_pool", "position_on_cls"):
            if getattr(self, field) not in (True, False, None):
                raise ValueError(f"{field}={getattr(self, field)!r} is not yes or no")
        check_sizes(self.image_size, self.patch_size)
        if self.head_dim is None and self.width % self.heads:
            raise ValueError(
                f"width {self.width} is not divisible by {self.heads} heads; divisors are {divisors(self.width)}, "
                "or set head_dim"
            )
        if self.pooling == "cls" and self.cls_token is False:
            raise ValueError("pooling='cls' needs the class token; use pooling='mean' or leave cls_token out")
        if self.pooling == "tokens" and (self.head != "linear" or self.norm_after_pool):
            raise ValueError("pooling='tokens' goes with head='linear' and a norm before it")
        if self.position == "sincos-2d" and self.width % 4:
            raise ValueError(f"position='sincos-2d' needs a width divisible by 4, not {self.width}")
        if self.position == "learned-2d" and self.width % 2:
            raise ValueError(f"position='learned-2d' needs an even width, not {self.width}")
        if self.attention == "axial" and (self.has_cls or self.position == "relative"):
            raise ValueError("attention='axial' has no place for a class token or relative positions: pooling='mean'")
        if self.stem == "conv":
            self._check_conv_stem()

    def _check_conv_stem(self) -> None:
        if not self.conv_stem:
            halvings = min((side & -side).bit_length() - 1 for side in pair(self.patch_size))
            widths = (max(1, self.width >> (halvings - 1 - place)) for place in range(halvings))
            object.__setattr__(self, "conv_stem", tuple((width, 3, 2) for width in widths))
        if not self.conv_stem:
            raise ValueError("stem='conv' needs an even patch size, or conv_stem=((channels, kernel, stride), ...)")
        stride = 1
        for _, _, s in self.conv_stem:
            stride *= s
        if any(p % stride for p in pair(self.patch_size)):
            raise ValueError(f"the conv stem's total stride {stride} does not divide the patch size {self.patch_size}")

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of patch tokens."""
        (height, width), (patch_h, patch_w) = pair(self.image_size), pair(self.patch_size)
        return height // patch_h, width // patch_w

    @property
    def has_cls(self) -> bool:
        return self.pooling == "cls" if self.cls_token is None else self.cls_token

    @property
    def num_tokens(self) -> int:
        """Sequence length in the encoder: the patches, and the class token if there is one."""
        rows, columns = self.grid
        return rows * columns + int(self.has_cls)

    @property
    def attention_width(self) -> int:
        """Width to which queries, keys and values are projected: heads x head dimension."""
        return self.width if self.head_dim is None else self.heads * self.head_dim

    @property
    def num_features(self) -> int:
        """Width of the classifier's input."""
        if self.pooling == "tokens":
            return self.width * math.prod(self.grid)
        return (self.head_width or self.width) if self.head == "mlp" else self.width


def divisors(number: int) -> list[int]:
    """Return all divisors of a number, ascending."""
    return [d for d in range(1, number + 1) if number % d == 0]


def check_sizes(image_size: Size, patch_size: Size) -> None:
    """Raise ValueError unless the patch divides the image in both directions; the message lists sizes that would
    fit."""
    for side, image, patch in zip(("height", "width"), pair(image_size), pair(patch_size), strict=True):
        if patch < 1 or image < 1:
            raise ValueError(f"image {side} {image} px and patch {patch} px must be at least 1")
        if image % patch:
            below, above = image // patch * patch, (image // patch + 1) * patch
            sizes = f"{below} or {above}" if below else f"{above}"
            raise ValueError(
                f"image {side} {image} px is not divisible by the patch size {patch} px. Nearest legal image sizes: "
                f"{sizes} px; patch sizes that divide {image}: {', '.join(map(str, divisors(image)))}"
            )


def _row(width: int, depth: int, heads: int, mlp_width: int, **more: Any) -> dict[str, Any]:
    return {"width": width, "depth": depth, "heads": heads, "mlp_width": mlp_width, **more}


# With a sine-cosine table of unit scale, ViTs this small learn far faster than with N(0, 0.02) positions.
_SMALL = {"position": "sincos-2d", "pooling": "mean"}
_TINY = {"position": "sincos-2d", "pooling": "tokens"}

# ViT-Lite as in its authors' code, except for two things that stay as in ViT: an MLP's norm is not in the residual
# stream, and weights are initialised by Xavier's rule. The authors' dropout, which is for long trainings, is left out.
_LITE = {"gelu": "exact", "norm_eps": 1e-5, "position_std": 0.2, "qkv_bias": False}

VARIANTS: dict[str, dict[str, Any]] = {
    "atto": _row(16, 2, 2, 64, **_TINY),
    "femto": _row(32, 2, 2, 128, **_TINY),
    "pico-2": _row(48, 2, 3, 192, **_TINY),
    "pico": _row(48, 3, 3, 192, **_SMALL),
    "nano": _row(64, 4, 4, 256, **_SMALL),
    "micro": _row(96, 5, 3, 384, **_SMALL),
    "mini": _row(128, 6, 4, 512, **_SMALL),
    "Lite-2": _row(128, 2, 2, 128, **_LITE),
    "Lite-4": _row(128, 4, 2, 128, **_LITE),
    "Lite-6": _row(256, 6, 4, 512, **_LITE),
    "Lite-7": _row(256, 7, 4, 512, **_LITE),
    "Ti": _row(192, 12, 3, 768),
    "S": _row(384, 12, 6, 1536),
    "b": _row(384, 12, 12, 1536),  # Figure 4: B with hidden dimensions halved; depth and heads are those of B
    "B": _row(768, 12, 12, 3072),
    "L": _row(1024, 24, 16, 4096),
    "L-8": _row(1024, 8, 16, 2048),  # Figure 8: where its lines cross; the number of heads is assumed to be L's
    "H": _row(1280, 32, 16, 5120),
    "g": _row(1408, 40, 16, 6144),
    "G": _row(1664, 48, 16, 8192),
}

# Well-known configurations of other code bases, one line each, with the sizes that they are usually built at.
_TORCH = {"gelu": "exact", "image_size": 224, "patch_size": 16, "channels": 3, "num_classes": 1000}
_EARLY_CONVS = ((64, 3, 2), (128, 3, 2), (256, 3, 2), (512, 3, 2))
_MNIST = {"image_size": 28, "patch_size": 7, "channels": 1, "num_classes": 10}
PRESETS: dict[str, dict[str, Any]] = {
    "torchvision-vit_b_16": _row(768, 12, 12, 3072, **_TORCH),
    "torchvision-vit_b_16-rep": _row(768, 12, 12, 3072, **_TORCH, head="mlp"),
    "torchvision-vit_b_16-conv": _row(768, 12, 12, 3072, **_TORCH, stem="conv", conv_stem=_EARLY_CONVS),
    "mnist-7562": _row(16, 2, 2, 64, **_MNIST, pooling="mean", position="sincos-2d", gelu="exact"),
    "patch32-d1024": _row(1024, 6, 16, 2048, **{**_TORCH, "image_size": 256, "patch_size": 32}, head_dim=64),
    "mean-norm-b16": _row(768, 12, 8, 3072, **_TORCH, pooling="mean", norm_after_pool=True),
}

_NAME = re.compile(r"ViT-(?P<row>[A-Za-z]+(?:-\d+)?)/(?P<patch>[1-9]\d*)")


def parse(name: str) -> dict[str, Any] | None:
    """Return the fields of `ViTConfig`, name -> value, that a model's name stands for: "ViT-<variant>/<patch>", such as
    "ViT-B/16", or a preset; None for any other name."""
    if name in PRESETS:
        return dict(PRESETS[name])
    match = _NAME.fullmatch(name)
    if match is None or match["row"] not in VARIANTS:
        return None
    return {**VARIANTS[match["row"]], "patch_size": int(match["patch"])}


def config_for(name: str, **overrides: Any) -> ViTConfig:
    """Return the configuration of a model's name ("ViT-B/16", or a preset). `overrides` are fields of ViTConfig; they
    complete or replace those that the name stands for.

    Raises:
        ValueError: the name or a field is unknown, or sizes do not fit each other.
    """
    fields = parse(name)
    if fields is None:
        raise ValueError(f"{name!r} is not ViT-<{'|'.join(VARIANTS)}>/<patch> nor one of {', '.join(PRESETS)}")
    known = {field.name for field in dataclasses.fields(ViTConfig)}
    if strange := sorted(set(overrides) - known):
        raise ValueError(f"unknown option {', '.join(strange)}; options are {', '.join(sorted(known))}")
    fields |= overrides
    return ViTConfig(**fields)
