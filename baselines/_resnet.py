"""The ResNet used by the families BiT and Hybrid.

Sources: BiT section 3.1 and its code; vit_jax models_resnet.py for the hybrids' backbone. Convolutions standardise
their weights (Qiao et al. 2019) and are preceded (in BiT) or followed (in hybrids) by GroupNorm. Names of weights are
those of timm's ResNetV2, with which tests compare; using timm's code instead would cost each process three seconds of
imports, as long as torch itself. Shapes: B images, C channels, H and W pixels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vit import layers

if TYPE_CHECKING:
    from vit.formats import Entry

STEM_CHANNELS = 64  # channels of the stem at width 1
STAGE_CHANNELS = (256, 512, 1024, 2048)  # outputs of the four stages at width 1
SMALLEST_GROUP = 2  # least channels in a group of GroupNorm, from width 1 on: that of the stem at width 1
SMALLEST_NARROW_GROUP = 8
"""Channels below width 1. Groups of two would take from a map nearly all that its average tells of an image: what is
normalised over one or two channels has the same mean and deviation in every image."""
BOTTLENECK = 4  # a block's inner channels are its outputs divided by this

Layer = Callable[..., Any]


def same_padding(x_BCHW: Tensor, *, kernel: Sequence[int], stride: Sequence[int]) -> tuple[int, int, int, int]:
    """Return the padding that TensorFlow calls SAME, (left, right, top, bottom) in pixels; an odd pixel goes to the
    right, or the bottom. `kernel` and `stride` are (vertical, horizontal)."""
    needed_H, needed_W = (
        max((-(-size // step) - 1) * step + width - size, 0)
        for size, step, width in zip(x_BCHW.shape[-2:], stride, kernel, strict=True)
    )
    return needed_W // 2, needed_W - needed_W // 2, needed_H // 2, needed_H - needed_H // 2


class OverDeviation(torch.autograd.Function):
    """Standardises each row of x_ON to (x − mean) / (standard deviation + eps), by torch's kernels for layer norm.

    With z the centred rows divided by their deviation s, and f = s / (s + eps), the result is f z. For an incoming
    gradient g, the gradient is that of layer norm for f g, plus (1 − f) / s times the mean of f g z along z, because f
    depends on s.
    """

    @staticmethod
    def forward(ctx: Any, x_ON: Tensor, eps: float) -> Tensor:
        z_ON, mean_O, over_s_O = torch.native_layer_norm(x_ON, x_ON.shape[1:], None, None, 0.0)
        f_O = 1 / (1 + eps * over_s_O)
        ctx.save_for_backward(x_ON, z_ON, mean_O, over_s_O, f_O)
        return z_ON * f_O

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        x_ON, z_ON, mean_O, over_s_O, f_O = ctx.saved_tensors
        g_ON = gradients[0] * f_O
        along_O = torch.linalg.vecdot(g_ON, z_ON)[:, None] / x_ON.shape[1]
        of_norm = torch.ops.aten.native_layer_norm_backward(
            g_ON, x_ON, x_ON.shape[1:], mean_O, over_s_O, None, None, [True, False, False]
        )
        return of_norm[0].addcmul_(z_ON, along_O * (1 - f_O) * over_s_O), None


class StdConv(nn.Conv2d):
    """A convolution without bias, whose weight is standardised before use: over the inputs of each output channel it
    has mean 0 and standard deviation 1.

    Args:
        eps: small number that keeps the division finite. It is added to the variance, or to the standard deviation if
            `eps_on_std`.
        same: whether images are padded as by `same_padding`.
    """

    standardises_weight = True  # the weight stays float32, whatever the activations are: see bench/train/precision.py

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
        """Return the weight standardised to mean 0 and standard deviation 1 over each output channel's inputs (biased
        variance), computed in float32 and converted to `dtype`."""
        flat = self.weight.flatten(1)
        # Float32 results must stay equal to the bit until the recipe's next revision: only other types use
        # `OverDeviation`.
        reduced_on_cpu = flat.is_cpu and dtype != torch.float32
        if self.eps_on_std and reduced_on_cpu:
            # A step of R50+ViT-B/16 then takes 0.92 of the time (0.85 to 0.99 in six pairs of alternating processes).
            standardised = OverDeviation.apply(flat, self.eps)
        elif self.eps_on_std or flat.is_meta:
            # On the meta device plain operations are used, because counters would have to decompose the kernels below.
            variance, mean = torch.var_mean(flat, dim=1, correction=0, keepdim=True)
            deviation = variance.sqrt() + self.eps if self.eps_on_std else (variance + self.eps).sqrt()
            standardised = (flat - mean) / deviation
        elif flat.is_cpu:
            standardised = F.layer_norm(flat, flat.shape[1:], eps=self.eps)  # half the time of the kernel below
        else:
            # Batch normalisation of one "image" with O channels computes the same, in one kernel.
            standardised = F.batch_norm(flat[None], None, None, training=True, momentum=0.0, eps=self.eps)
        return standardised.view_as(self.weight).to(dtype)

    def forward(self, x_BCHW: Tensor) -> Tensor:
        weight = self.standardised_weight(x_BCHW.dtype)
        stride, padding = self.stride, self.padding
        if layers.keeps_order(x_BCHW) and self.kernel_size == (1, 1):
            # Drop the pixels that a strided 1x1 convolution skips: oneDNN's own strided products take three times as
            # long.
            x_BCHW, stride = x_BCHW[..., :: stride[0], :: stride[1]], (1, 1)
        elif self.same:
            sides = same_padding(x_BCHW, kernel=self.kernel_size, stride=stride)
            if sides[0] != sides[1] or sides[2] != sides[3]:
                x_BCHW, padding = F.pad(x_BCHW, sides), (0, 0)
            else:
                padding = (sides[2], sides[0])
        y_BCHW = F.conv2d(x_BCHW, weight, None, stride, padding, self.dilation, self.groups)
        # GPUs compute convolutions in channels_last. It is requested here because compiled blocks, whose normalisation
        # hides it, would otherwise pass on every map in the other order: 15 % more bytes of a block
        # (`python -m tools.codegen --models R50x1`). On a CPU a step of R50x1 would take 1.2 times as long with it,
        # because torch's group norm is slower then.
        return y_BCHW if layers.runs_on_cpu(y_BCHW) else y_BCHW.contiguous(memory_format=torch.channels_last)


class GroupNorm(nn.GroupNorm):
    """GroupNorm of 32 groups, followed by ReLU unless `relu` is False. Narrow layers have fewer groups, so that each
    group has at least `smallest` channels."""

    def __init__(self, channels: int, *, smallest: int, eps: float = 1e-5, relu: bool = True) -> None:
        groups = min(32, max(1, channels // smallest))
        while channels % groups:
            groups -= 1
        super().__init__(groups, channels, eps=eps)
        # A module with a child is compiled by itself, also in the hybrids' stem: see `bench.train.compiled.blocks`.
        self.act = nn.ReLU(inplace=True) if relu else nn.Identity()

    def forward(self, x_BCHW: Tensor) -> Tensor:
        return self.act(super().forward(x_BCHW))


class Downsample(nn.Module):
    """The projection shortcut of a stage's first block: a 1x1 convolution, followed by a norm unless `preact` (in
    pre-activation networks)."""

    def __init__(self, inputs: int, outputs: int, *, stride: int, preact: bool, conv: Layer, norm: Layer) -> None:
        super().__init__()
        self.conv = conv(inputs, outputs, 1, stride=stride)
        self.norm = nn.Identity() if preact else norm(outputs, relu=False)

    def forward(self, x_BCHW: Tensor) -> Tensor:
        return self.norm(self.conv(x_BCHW))


class PreActBottleneck(nn.Module):
    """ResNet-v2's bottleneck block: three convolutions, each preceded by a norm; the second convolution has the stride,
    as in BiT's code."""

    def __init__(self, inputs: int, outputs: int, *, stride: int, first: bool, conv: Layer, norm: Layer) -> None:
        super().__init__()
        inner, layers = outputs // BOTTLENECK, {"conv": conv, "norm": norm}
        self.downsample = Downsample(inputs, outputs, stride=stride, preact=True, **layers) if first else None
        self.norm1 = norm(inputs)
        self.conv1 = conv(inputs, inner, 1)
        self.norm2 = norm(inner)
        self.conv2 = conv(inner, inner, 3, stride=stride)
        self.norm3 = norm(inner)
        self.conv3 = conv(inner, outputs, 1)

    def forward(self, x_BCHW: Tensor) -> Tensor:
        y_BCHW = self.norm1(x_BCHW)
        shortcut_BCHW = x_BCHW if self.downsample is None else self.downsample(y_BCHW)
        y_BCHW = self.conv2(self.norm2(self.conv1(y_BCHW)))
        return self.conv3(self.norm3(y_BCHW)) + shortcut_BCHW


class Bottleneck(nn.Module):
    """ResNet-v1.5's bottleneck block: three convolutions, each followed by a norm; the second convolution has the
    stride."""

    def __init__(self, inputs: int, outputs: int, *, stride: int, first: bool, conv: Layer, norm: Layer) -> None:
        super().__init__()
        inner, layers = outputs // BOTTLENECK, {"conv": conv, "norm": norm}
        self.downsample = Downsample(inputs, outputs, stride=stride, preact=False, **layers) if first else None
        self.conv1 = conv(inputs, inner, 1)
        self.norm1 = norm(inner)
        self.conv2 = conv(inner, inner, 3, stride=stride)
        self.norm2 = norm(inner)
        self.conv3 = conv(inner, outputs, 1)
        self.norm3 = norm(outputs, relu=False)

    def forward(self, x_BCHW: Tensor) -> Tensor:
        shortcut_BCHW = x_BCHW if self.downsample is None else self.downsample(x_BCHW)
        y_BCHW = self.norm2(self.conv2(self.norm1(self.conv1(x_BCHW))))
        return F.relu(self.norm3(self.conv3(y_BCHW)) + shortcut_BCHW, inplace=True)


class Stage(nn.Module):
    """A sequence of `depth` blocks whose outputs have the same size; the first block changes size (by `stride`) and
    channels (from `inputs` to `outputs`)."""

    def __init__(self, block: Layer, inputs: int, outputs: int, *, depth: int, stride: int, **layers: Layer) -> None:
        super().__init__()
        self.blocks = nn.Sequential(
            block(inputs, outputs, stride=stride, first=True, **layers),
            *(block(outputs, outputs, stride=1, first=False, **layers) for _ in range(depth - 1)),
        )

    def forward(self, x_BCHW: Tensor) -> Tensor:
        return self.blocks(x_BCHW)


class SamePool(nn.MaxPool2d):
    """3x3 max-pooling of stride 2, padded as by `same_padding`."""

    def __init__(self) -> None:
        super().__init__(3, 2)

    def forward(self, x_BCHW: Tensor) -> Tensor:
        sides = same_padding(x_BCHW, kernel=(3, 3), stride=(2, 2))
        return super().forward(F.pad(x_BCHW, sides, value=-torch.inf))


class Head(nn.Module):
    """The average over the feature map, then a classifier, which is a 1x1 convolution as in BiT's code."""

    def __init__(self, channels: int, num_classes: int) -> None:
        super().__init__()
        self.fc = nn.Conv2d(channels, num_classes, 1) if num_classes else nn.Identity()

    def forward(self, x_BCHW: Tensor, *, pre_logits: bool = False) -> Tensor:
        x_BC11 = F.adaptive_avg_pool2d(x_BCHW, 1)
        return (x_BC11 if pre_logits else self.fc(x_BC11)).flatten(1)


class ResNet(nn.Module):
    """A ResNet from images x_BCHW to class logits, or, as a hybrid's backbone, to a feature map.

    Args:
        blocks: number of bottleneck blocks in each stage.
        width: factor on every number of channels.
        channels: channels of the images.
        num_classes: outputs of the classifier; 0 = no classifier.
        small_stem: None = a 7x7 convolution of stride 2 and max-pooling; 1 or 2 = a 3x3 convolution of that stride, for
            small images.
        preact: whether blocks are BiT's pre-activation blocks, followed by a classifier; otherwise the hybrids'
            post-activation blocks, with SAME padding and without a classifier.
        numerics: whose epsilons are used, "official" (the JAX code's) or "timm" (its port's); weights fit either.
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
        super().__init__()
        constants: dict[str, Any] = {"same": not preact, "eps": 1e-8}
        norm_eps = 1e-5
        if numerics == "official":
            constants |= {"eps": 1e-10} if preact else {"eps": 1e-5, "eps_on_std": True}
            norm_eps = 1e-5 if preact else 1e-6  # torch's and flax's defaults, with which the two families were trained
        conv: Layer = partial(StdConv, **constants)
        smallest = SMALLEST_GROUP if width >= 1 else SMALLEST_NARROW_GROUP
        norm: Layer = partial(GroupNorm, eps=norm_eps, smallest=smallest)
        outputs = int(STEM_CHANNELS * width)
        self.stem = nn.Sequential()
        self.stem.add_module("conv", conv(channels, outputs, 3 if small_stem else 7, stride=small_stem or 2))
        if not preact:
            self.stem.add_module("norm", norm(outputs))
        if small_stem is None and preact:
            self.stem.add_module("pad", nn.ConstantPad2d(1, 0.0))
            self.stem.add_module("pool", nn.MaxPool2d(3, 2))
        elif small_stem is None:
            self.stem.add_module("pool", SamePool())
        self.stages = nn.Sequential()
        block: Layer = PreActBottleneck if preact else Bottleneck
        for number, depth in enumerate(blocks):
            inputs, outputs = outputs, int(STAGE_CHANNELS[number] * width)
            stride = 2 if number else 1
            self.stages.append(Stage(block, inputs, outputs, depth=depth, stride=stride, conv=conv, norm=norm))
        self.norm = norm(outputs) if preact else nn.Identity()
        self.head: Any = Head(outputs, num_classes) if preact else nn.Identity()
        self.preact, self.num_classes = preact, num_classes
        self.num_features = self.out_channels = outputs
        self.stride = (small_stem or 4) * 2 ** max(len(blocks) - 1, 0)

    @torch.no_grad()
    def init_weights(self, generator: torch.Generator | None = None) -> None:
        """Initialise convolutions as flax does by default (standardisation divides their scale out), the classifier
        with zeros, and in hybrids the scale of each block's last norm with zeros. `generator`: None = torch's global
        one."""
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                layers.lecun_normal(module.weight, generator)
            elif isinstance(module, nn.GroupNorm):
                module.reset_parameters()
        head = getattr(self.head, "fc", None)
        if isinstance(head, nn.Conv2d):
            layers.constant(head.weight, 0.0)
            layers.constant(head.bias, 0.0)
        for module in self.modules():
            if isinstance(module, Bottleneck):
                layers.constant(module.norm3.weight, 0.0)

    def checkpoint_entries(self, layout: str) -> list[Entry]:
        """Return how each weight is stored in a checkpoint layout ("google", "timm" or "own"; see vit/formats.py).
        timm's names are the model's own."""
        from baselines._resnet_keys import entries

        return entries(self, layout)

    def forward_features(self, x_BCHW: Tensor) -> Tensor:
        """Return the last stage's feature map, x_BCHW.

        On a CPU all maps are kept NCHW in memory: torch's group norm takes 2.5 times as long on NHWC, the order in
        which batches of pixels arrive.
        """
        if layers.runs_on_cpu(x_BCHW):
            x_BCHW = x_BCHW.clone(memory_format=torch.contiguous_format)  # `contiguous` would not copy grey images
        return self.norm(self.stages(self.stem(x_BCHW)))

    def features(self, x_BCHW: Tensor) -> Tensor:
        """Return the pooled representation x_BC, the classifier's input."""
        return self.head(self.forward_features(x_BCHW), pre_logits=True)

    def forward(self, x_BCHW: Tensor) -> Tensor:
        """Return class logits x_BK, or, as a hybrid's backbone, the feature map x_BCHW."""
        return self.head(self.forward_features(x_BCHW))


def small_enough(image_size: tuple[int, int], stride: int) -> None:
    """Raise ValueError if a side of the image, (height, width), is smaller than the network's total down-sampling,
    `stride`, in pixels."""
    if min(image_size) < stride:
        raise ValueError(
            f"image {image_size[0]}x{image_size[1]} px is smaller than the total down-sampling of {stride}; use "
            f"at least {stride} px, or a small-image stem (suffix -s1 or -s2) or fewer stages"
        )


def materialise(module: nn.Module, device: torch.device, generator: torch.Generator | None) -> None:
    """Give a module that was built on the meta device memory on `device`, and initialise its weights; do nothing if
    `device` is "meta". `generator`: None = torch's global one."""
    if device.type != "meta":
        layers.allocate(module, device)
        module.init_weights(generator)  # type: ignore[operator]
