"""The ResNets behind BiT and the hybrids, on timm's ResNetV2.

Facts: BiT section 3.1 and its code; vit_jax models_resnet.py for the hybrids' backbone. Convolutions standardise their
weights (Qiao et al. 2019) and are followed, or preceded, by GroupNorm. Shapes: B images, C channels, H and W pixels.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from timm.layers import GroupNormAct
from timm.models.resnetv2 import ResNetV2
from torch import Tensor, nn
from torch.nn import functional as F

from vit import formats, layers
from vit.formats import Entry, conv, norm, vector

STAGE_CHANNELS = (256, 512, 1024, 2048)  # outputs of the four stages at width 1


class StdConv(nn.Conv2d):
    """Convolution with a standardised weight, without bias.

    Args:
        eps: keeps the division finite; added to the variance, or to the deviation where `eps_on_std`.
        same: TensorFlow's SAME padding, which on even sizes puts the odd pixel at the bottom right.
    """

    standardises_weight = True  # in float32, whatever the activations are: see bench/train/precision.py

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int,
        *,
        stride: int = 1,
        dilation: int = 1,
        groups: int = 1,
        eps: float = 1e-10,
        eps_on_std: bool = False,
        same: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(
            in_channels,
            out_channels,
            kernel_size,
            stride=stride,
            padding=(kernel_size - 1) // 2 * dilation,
            dilation=dilation,
            groups=groups,
            bias=False,
            device=device,
            dtype=dtype,
        )
        self.eps, self.eps_on_std, self.same = eps, eps_on_std, same

    def standardised_weight(self, dtype: torch.dtype = torch.float32) -> Tensor:
        """Mean 0 and deviation 1 over each output channel's inputs (biased variance); found in float32."""
        flat = self.weight.flatten(1)
        if self.eps_on_std or flat.is_meta:
            # Operation counters would have to take the kernels below apart each time.
            variance, mean = torch.var_mean(flat, dim=1, correction=0, keepdim=True)
            deviation = variance.sqrt() + self.eps if self.eps_on_std else (variance + self.eps).sqrt()
            standardised = (flat - mean) / deviation
        elif flat.is_cpu:
            standardised = F.layer_norm(flat, flat.shape[1:], eps=self.eps)  # half the time of the kernel below
        else:
            # Batch statistics over one "image" of O channels are the same thing, in one kernel.
            standardised = F.batch_norm(flat[None], None, None, training=True, momentum=0.0, eps=self.eps)
        return standardised.view_as(self.weight).to(dtype)

    def forward(self, x_BCHW: Tensor) -> Tensor:
        weight = self.standardised_weight(x_BCHW.dtype)
        stride, padding = self.stride, self.padding
        if layers.keeps_order(x_BCHW) and self.kernel_size == (1, 1):
            # Pixels that nobody reads are dropped first: oneDNN's own strided products take three times as long.
            x_BCHW, stride = x_BCHW[..., :: stride[0], :: stride[1]], (1, 1)
        elif self.same:
            needed = [
                max((-(-size // step) - 1) * step + kernel - size, 0)
                for size, step, kernel in zip(x_BCHW.shape[-2:], stride, self.kernel_size, strict=True)
            ]
            if needed[0] % 2 or needed[1] % 2:
                (top, bottom), (left, right) = ((n // 2, n - n // 2) for n in needed)
                x_BCHW, padding = F.pad(x_BCHW, (left, right, top, bottom)), (0, 0)
            else:
                padding = (needed[0] // 2, needed[1] // 2)
        y_BCHW = F.conv2d(x_BCHW, weight, None, stride, padding, self.dilation, self.groups)
        # As GPUs compute convolutions. Said here, or compiled blocks, whose normalisation hides it, would hand over
        # every map in the other order: 15 % more bytes of a block (`python -m bench.train.codegen --models R50x1`).
        # On a CPU a step of R50x1 takes 1.2 times as long that way: torch's group norm is slower.
        return y_BCHW if layers.runs_on_cpu(y_BCHW) else y_BCHW.contiguous(memory_format=torch.channels_last)


def group_norm(channels: int, *, eps: float = 1e-5, **options: Any) -> GroupNormAct:
    """GroupNorm of 32 groups; narrow layers have fewer, of at least two channels (the stem's size at width 1)."""
    groups = min(32, max(1, channels // 2))
    while channels % groups:
        groups -= 1
    return GroupNormAct(channels, groups, eps=eps, **options)


class ResNet(ResNetV2):
    """timm's ResNetV2 with the harness's contract: `features`, `init_weights(generator)`.

    Args:
        blocks: bottleneck blocks per stage.
        width: factor on every channel count.
        small_stem: None = 7x7 of stride 2 and max-pooling; 1 or 2 = a 3x3 convolution of that stride, for small images.
        preact: BiT's v2 blocks; otherwise the hybrids' post-activation blocks, with SAME padding.
        numerics: the constants of the `official` JAX code or of `timm`'s port; weights fit either.
    """

    def __init__(
        self,
        blocks: Sequence[int],
        *,
        width: float,
        channels: int,
        num_classes: int,
        small_stem: int | None,
        preact: bool,
        numerics: str = "official",
    ) -> None:
        if numerics not in ("official", "timm"):
            raise ValueError(f"numerics={numerics!r} is neither 'official' nor 'timm'")
        conv: dict[str, Any] = {"same": not preact, "eps": 1e-8}
        norm_eps = 1e-5
        if numerics == "official":
            conv |= {"eps": 1e-10} if preact else {"eps": 1e-5, "eps_on_std": True}
            norm_eps = 1e-5 if preact else 1e-6  # torch's and flax's defaults: each family was trained with its own
        super().__init__(
            layers=list(blocks),
            channels=STAGE_CHANNELS,
            num_classes=num_classes,
            in_chans=channels,
            global_pool="avg" if preact else "",
            width_factor=width,  # type: ignore[arg-type]
            stem_type="fixed" if preact else "same",
            preact=preact,
            norm_layer=partial(group_norm, eps=norm_eps),  # type: ignore[arg-type]
            conv_layer=partial(StdConv, **conv),
            output_stride=64,
        )
        if small_stem is not None:
            full: Any = self.stem
            conv3 = StdConv(channels, full.conv.out_channels, 3, stride=small_stem, **conv)
            layers = {"conv": conv3} if preact else {"conv": conv3, "norm": full.norm}
            self.stem = nn.Sequential()
            for name, module in layers.items():
                self.stem.add_module(name, module)
        if not preact:
            self.head: Any = nn.Identity()
        self.preact = preact
        self.out_channels = int(self.num_features)
        self.stride = (small_stem or 4) * 2 ** max(len(blocks) - 1, 0)

    @torch.no_grad()
    def init_weights(self, generator: torch.Generator | None = None, *, zero_init_last: bool = False) -> None:
        """flax's defaults (the weights' scale is divided out), a zero head, and the hybrids' zero last norm.

        `zero_init_last` is accepted because timm's constructor passes it; which norm starts at zero is fixed.
        """
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                layers.lecun_normal(module.weight, generator)
            elif isinstance(module, nn.GroupNorm):
                module.reset_parameters()
        head = getattr(self.head, "fc", None)
        if isinstance(head, nn.Conv2d):
            layers.constant(head.weight, 0.0)
            layers.constant(head.bias, 0.0)
        if not getattr(self, "preact", True):
            stages: Any = self.stages
            for stage in stages:
                for block in stage.blocks:
                    layers.constant(block.norm3.weight, 0.0)

    def checkpoint_entries(self, layout: str) -> list[Entry]:
        """How a layout names these weights; timm's names are ours."""
        if layout != "google":
            return formats.own(self.state_dict())
        return bit_entries(self) if self.preact else backbone_entries(self)

    def forward_features(self, x_BCHW: Tensor) -> Tensor:
        """The last stage's map; on a CPU all maps are NCHW in memory: torch's group norm takes 2.5 times as long where
        they are NHWC, as batches of pixels are."""
        if layers.runs_on_cpu(x_BCHW):
            x_BCHW = x_BCHW.clone(memory_format=torch.contiguous_format)  # `contiguous` leaves grey images as they are
        return super().forward_features(x_BCHW)

    def features(self, x_BCHW: Tensor) -> Tensor:
        """The pooled representation that feeds the classifier, x_BC."""
        return self.forward_head(self.forward_features(x_BCHW), pre_logits=True)

    def forward(self, x_BCHW: Tensor) -> Tensor:
        """Logits x_BK; for a hybrid's backbone, the feature map."""
        x_BCHW = self.forward_features(x_BCHW)
        return self.forward_head(x_BCHW) if self.preact else x_BCHW


def small_enough(image_size: tuple[int, int], stride: int) -> None:
    """Raise ValueError where an image would shrink to nothing on the way."""
    if min(image_size) < stride:
        raise ValueError(
            f"image {image_size[0]}x{image_size[1]} px is smaller than the total down-sampling of {stride}; use "
            f"at least {stride} px, or a small-image stem (suffix -s1 or -s2) or fewer stages"
        )


def materialise(module: nn.Module, device: torch.device, generator: torch.Generator | None) -> None:
    """Give a module that was built on the meta device its memory and its initial weights."""
    if device.type != "meta":
        module.to_empty(device=device)
        module.init_weights(generator)  # type: ignore[operator]


# -- keys of the official .npz files: convolutions are HWIO there, OIHW here; none has a bias --------------------------

_CONV = "standardized_conv2d/kernel"


def bit_entries(model: Any) -> list[Entry]:
    """BiT's layout (big_transfer): unit numbers have two digits, and a norm belongs to the convolution it precedes."""
    entries = [conv("stem.conv.weight", f"resnet/root_block/{_CONV}")]
    for stage, module in enumerate(model.stages):
        for unit, block in enumerate(module.blocks):
            ours, theirs = f"stages.{stage}.blocks.{unit}", f"resnet/block{stage + 1}/unit{unit + 1:02d}"
            for index, letter in enumerate("abc", start=1):
                entries += norm(f"{ours}.norm{index}", f"{theirs}/{letter}/group_norm", scale="gamma", bias="beta")
                entries.append(conv(f"{ours}.conv{index}.weight", f"{theirs}/{letter}/{_CONV}"))
            if block.downsample is not None:
                entries.append(conv(f"{ours}.downsample.conv.weight", f"{theirs}/a/proj/{_CONV}"))
    entries += norm("norm", "resnet/group_norm", scale="gamma", bias="beta")
    if model.num_classes:
        entries.append(conv("head.fc.weight", "resnet/head/conv2d/kernel"))
        entries.append(vector("head.fc.bias", "resnet/head/conv2d/bias"))
    return entries


def backbone_entries(model: Any) -> list[Entry]:
    """A hybrid's ResNet (vit_jax models_resnet.py): a norm belongs to the convolution it follows."""
    entries = [conv("stem.conv.weight", "conv_root/kernel"), *norm("stem.norm", "gn_root")]
    for stage, module in enumerate(model.stages):
        for unit, block in enumerate(module.blocks):
            ours, theirs = f"stages.{stage}.blocks.{unit}", f"block{stage + 1}/unit{unit + 1}"
            for index in (1, 2, 3):
                entries.append(conv(f"{ours}.conv{index}.weight", f"{theirs}/conv{index}/kernel"))
                entries += norm(f"{ours}.norm{index}", f"{theirs}/gn{index}")
            if block.downsample is not None:
                entries.append(conv(f"{ours}.downsample.conv.weight", f"{theirs}/conv_proj/kernel"))
                entries += norm(f"{ours}.downsample.norm", f"{theirs}/gn_proj")
    return entries
