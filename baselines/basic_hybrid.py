"""Hybrids for small images: a ViT on the feature map of a small ResNet of He et al. 2016, section 4.2.

Names: <ResNet>+ViT-<row>/<n>, such as ResNet-8-s2+ViT-pico/8: a name of `baselines/resnet.py`, a ViT's row (variant of
vit/config.py), and the total down-sampling n, as in the ViT paper's own hybrids (`baselines/hybrid.py`). If the
ResNet's stride is more than n, its last stages are removed and their blocks are appended to the stage before, as in the
paper's R50+ViT-B/16; if its stride is less, the remaining factor of n is the patch size on the feature map. Options:
norm and blocks of the ResNet, and the options of a ViT. An image whose size is not divisible by n is padded by
repeating its border, evenly on all sides: 28 px become 32.

Batch normalisation and basic blocks are the usual choice at this size: a stem of the paper's kind (bottlenecks,
GroupNorm, standardised weights) at an eighth of its width was 13 points behind networks from elsewhere.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any, Literal

from baselines import bit, resnet
from vit import config as vit_config
from vit.model_family import ModelFamily

if TYPE_CHECKING:
    import torch

    from vit.model import VisionTransformer

_NAME = re.compile(r"(?P<resnet>ResNet-[^+]+)\+ViT-(?P<row>[A-Za-z]+(?:-\d+)?)/(?P<total>[1-9]\d*)")
_NAMES = ("ResNet-8-s4+ViT-pico/8", "ResNet-8-s2+ViT-pico/8", "ResNet-14-s2+ViT-nano/8", "ResNet-20-s2+ViT-nano/8")


def _parse(name: str) -> dict[str, Any] | None:
    """Parse a name such as "ResNet-8-s2+ViT-pico/8"; return None for a name of another form.

    Returns:
        A mapping. blocks, strides and widths: blocks per stage, strides (the stem's first) and channels per stage of
        the ResNet's remaining stages; row: the ViT's variant; total: the total down-sampling in pixels.
    """
    match = _NAME.fullmatch(name)
    if match is None or match["row"] not in vit_config.VARIANTS:
        return None
    parts, total = resnet._parse(match["resnet"]), int(match["total"])
    if parts is None:
        return None
    blocks, strides = [parts["blocks"]] * 3, list(parts["strides"])
    while math.prod(strides) > total and len(blocks) > 1:
        more = blocks.pop()
        strides.pop()
        blocks[-1] += more
    if total % math.prod(strides):
        return None
    widths = parts["widths"][: len(blocks)]
    return {"blocks": tuple(blocks), "strides": tuple(strides), "widths": widths, "row": match["row"], "total": total}


def accepts(name: str) -> bool:
    """Return whether `name` is <ResNet>+ViT-<row>/<total>, such as "ResNet-8-s2+ViT-pico/8", where the stride of the
    ResNet's remaining stages divides the total down-sampling."""
    return _parse(name) is not None


def build(
    name: str,
    *,
    image_size: int | tuple[int, int],
    channels: int,
    num_classes: int,
    generator: torch.Generator | None = None,
    norm: Literal["batch", "group"] = "batch",
    blocks: int | None = None,
    **options: Any,
) -> VisionTransformer:
    """Build a hybrid, such as "ResNet-8-s2+ViT-pico/8", with initial weights (without memory under
    `torch.device("meta")`).

    Args:
        generator: random generator of the initial weights; None = torch's global one.
        norm: normalisation of the ResNet: BatchNorm, or GroupNorm of four groups.
        blocks: largest number of blocks in each stage of the ResNet; None = as the name says.
        options: fields of ViTConfig to override.

    Raises:
        ValueError: the name or an option is unknown.
    """
    parts = _parse(name)
    if parts is None:
        raise ValueError(
            f"{name!r} is not ResNet-<6n+2>[x<width>][-s2|-s4]+ViT-<row>/<total> with a row of "
            f"{', '.join(vit_config.VARIANTS)} and a total down-sampling that the ResNet's stride divides"
        )
    import torch

    from baselines import _basic_hybrid, _basic_resnet
    from vit.config import pair

    if norm not in _basic_resnet.NORMS:
        raise ValueError(f"norm={norm!r} is not one of {', '.join(_basic_resnet.NORMS)}")
    total = parts["total"]
    padded = tuple(-(-side // total) * total for side in pair(image_size))
    fields = {"stem": "resnet", "image_size": padded, "channels": channels, "num_classes": num_classes, **options}
    config = vit_config.config_for(f"ViT-{parts['row']}/{total}", **fields)
    with torch.device("meta"):
        backbone = _basic_hybrid.Backbone(
            bit.at_most(parts["blocks"], blocks),
            widths=parts["widths"],
            strides=parts["strides"],
            channels=channels,
            norm=norm,
        )
    return _basic_hybrid.BasicHybrid(config, backbone=backbone, generator=generator)


FAMILY = ModelFamily(
    label="Hybrid",
    names=_NAMES,
    naming="ResNet-<6n+2>[x<width>][-s2|-s4]+ViT-<row>/<n>: a small ResNet, then a ViT's row; n is the down-sampling",
    has_dropout=True,
    rehearsed={"depth": 1, "blocks": 1},
    accepts=accepts,
    build=build,
)
