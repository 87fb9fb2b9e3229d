"""The small ResNets of He et al. 2016, section 4.2, which were made for CIFAR: our ResNets for images of 28 to 64 px.

Names: ResNet-<depth>[x<width>][-s2|-s4], such as ResNet-20, ResNet-8x2-s4. The depth is 6 n + 2: a stem, three stages
of n basic blocks (two 3x3 convolutions each) and a classifier; stages have 16, 32 and 64 channels times the width.
Options: norm=batch (as He et al.) or group; shortcut=pad (their option A, without weights) or conv (option B); blocks,
the largest number of blocks in each stage.

The stem and the first stage keep the image's size, as in He et al. With -s2 the stem has stride 2, and with -s4 the
first stage too: a quarter and a fourteenth of the multiplications, for short trainings on a CPU.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Literal

from vit.model_family import ModelFamily

if TYPE_CHECKING:
    import torch

    from baselines._basic_resnet import BasicResNet

WIDTHS = (16, 32, 64)  # channels of the three stages at width 1
STRIDES = {None: (1, 1, 2, 2), "2": (2, 1, 2, 2), "4": (2, 2, 2, 2)}  # the stem comes first, then the stages
OF_IMAGENET = (50, 152, 200)
"""Depths 6 n + 2 that everybody takes for the ImageNet networks of the same paper, which have bottleneck blocks."""

_NAME = re.compile(r"ResNet-(?P<depth>[1-9]\d*)(?:x(?P<width>\d+(?:\.\d+)?))?(?:-s(?P<strides>[24]))?")
_NAMES = tuple(f"ResNet-{depth}" for depth in (8, 14, 20, 32, 44, 56, 110))
_NAMES += ("ResNet-8-s2", "ResNet-14-s2", "ResNet-20-s2", "ResNet-8-s4", "ResNet-8x2-s4", "ResNet-14-s4")
LONGEST = 1202  # the largest depth in He et al.


def _parse(name: str) -> dict[str, Any] | None:
    """Parse a name such as "ResNet-8x2-s4" into {"blocks": blocks in each stage, "widths": channels of each stage,
    "strides": stride of the stem, then of each stage}. Return None for a name of another form."""
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    depth, width = int(match["depth"]), float(match["width"] or 1)
    blocks, rest = divmod(depth - 2, 6)
    if rest or not blocks or depth > LONGEST or depth in OF_IMAGENET or not width or (16 * width) % 4:
        return None
    return {
        "blocks": blocks,
        "widths": tuple(int(channels * width) for channels in WIDTHS),
        "strides": STRIDES[match["strides"]],
    }


def accepts(name: str) -> bool:
    """Return whether `name` is ResNet-<depth>[x<width>][-s2|-s4], such as "ResNet-20", with depth 6 n + 2 and channels
    that are multiples of 4."""
    return _parse(name) is not None


def build(
    name: str,
    *,
    image_size: int | tuple[int, int],
    channels: int,
    num_classes: int,
    generator: torch.Generator | None = None,
    norm: Literal["batch", "group"] = "batch",
    shortcut: Literal["pad", "conv"] = "pad",
    blocks: int | None = None,
    **options: Any,
) -> BasicResNet:
    """Build a small ResNet, such as "ResNet-20", with initial weights (without memory under `torch.device("meta")`).

    Args:
        image_size: side, or (height, width), in pixels. It is only checked: the network takes any size that is not
            smaller than its total down-sampling.
        generator: random generator of the initial weights; None = torch's global one.
        norm: BatchNorm, or GroupNorm of four groups; with GroupNorm, features do not depend on other images of a batch.
        shortcut: shortcut between maps of different size: option A (`pad`) or B (`conv`) of He et al.
        blocks: largest number of blocks in each stage; None = as the name says.

    Raises:
        ValueError: the name or an option is unknown, or the image is smaller than the total down-sampling.
    """
    if options:
        raise ValueError(f"unknown option {', '.join(sorted(options))}; a ResNet has: norm, shortcut, blocks")
    parts = _parse(name)
    if parts is None:
        raise ValueError(f"{name!r} is not ResNet-<depth>[x<width>][-s2|-s4] with depth 6 n + 2 and width k/4")
    import torch

    from baselines import _basic_resnet, _resnet, bit
    from vit.config import pair

    (parts["blocks"],) = bit.at_most((parts["blocks"],), blocks)
    for option, value, known in (("norm", norm, _basic_resnet.NORMS), ("shortcut", shortcut, _basic_resnet.SHORTCUTS)):
        if value not in known:
            raise ValueError(f"{option}={value!r} is not one of {', '.join(known)}")
    device = torch.get_default_device()
    with torch.device("meta"):
        model = _basic_resnet.BasicResNet(
            **parts, channels=channels, num_classes=num_classes, norm=norm, shortcut=shortcut
        )
    if min(pair(image_size)) < model.stride:
        raise ValueError(f"image {image_size} px is smaller than the total down-sampling of {model.stride}")
    _resnet.materialise(model, device, generator)
    return model


FAMILY = ModelFamily(
    label="ResNet",
    names=_NAMES,
    naming="ResNet-<depth>[x<width>][-s2|-s4]; depth 6 n + 2: 8 14 20 32 ...; -s2, -s4: down-sampling begins earlier",
    rehearsed={"blocks": 1},
    accepts=accepts,
    build=build,
)
