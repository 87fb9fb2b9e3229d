"""Hybrids: a ViT on the feature map of a ResNet (the ViT paper's section 3.1 and appendix B).

Names: R<depth>[x<width>]+ViT-<row>/<n>, where the row is a variant of vit/config.py, and n is the *total*
down-sampling, not a patch size: R50+ViT-B/16 has blocks [3, 4, 9], i.e. stage 4 is removed and its blocks are appended
to stage 3, and 1x1 patches. The backbone is post-activation (ResNet-v1.5), unlike BiT's. R+ViT-Ti/16 is the released
stem-only model: its name says 16, but its total down-sampling is 32 (stem 4, patch 8). Models with a total below 16
have a 3x3 stem and, unless a width is given, a quarter of the channels.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from baselines import bit
from vit import config as vit_config
from vit.model_family import ModelFamily

if TYPE_CHECKING:
    import torch

    from vit.model import VisionTransformer


_PAPER = ("R50+ViT-B/32", "R50+ViT-B/16", "R50+ViT-L/32", "R50+ViT-L/16", "R26+ViT-S/32", "R26+ViT-B/32")
_STEM_ONLY = "R+ViT-Ti/16"
_SMALL = tuple(f"R{depth}+ViT-{row}/4" for depth in (5, 8) for row in ("pico", "nano", "micro"))
_SMALL += ("R8+ViT-nano/8", "R8+ViT-micro/8", "R8+ViT-mini/8")
_NAME = re.compile(r"R(?P<depth>\d+)(?:x(?P<width>\d+(?:\.\d+)?))?\+ViT-(?P<row>[A-Za-z]+)/(?P<total>[1-9]\d*)")
_FULL_STEM_FROM = 16


def _parse(name: str) -> dict[str, Any] | None:
    """Parse a name such as "R50+ViT-B/16"; return None for a name of another form.

    Returns:
        A mapping. blocks: the ResNet's blocks per stage; width: its width factor; small_stem: stride of its small stem,
        or None; total: total down-sampling in pixels; row: the ViT's variant.
    """
    if name == _STEM_ONLY:
        return {"blocks": (), "width": 1.0, "small_stem": None, "total": 32, "row": "Ti"}
    match = _NAME.fullmatch(name)
    if match is None or match["row"] not in vit_config.VARIANTS:
        return None
    blocks = bit.BLOCKS.get(int(match["depth"]))
    total = int(match["total"])
    width = bit.width_of(match["width"], 1.0 if total >= _FULL_STEM_FROM else 0.25)
    if blocks is None or width is None:
        return None
    stem = 4 if total >= _FULL_STEM_FROM else (2 if total % 2 == 0 else 1)
    while stem * 2 ** (len(blocks) - 1) > total and len(blocks) > 1:  # the paper's option (ii), repeated if needed
        blocks = (*blocks[:-2], blocks[-2] + blocks[-1])
    if total % (stem * 2 ** (len(blocks) - 1)):
        return None
    small_stem = None if stem == 4 else stem
    return {"blocks": blocks, "width": width, "small_stem": small_stem, "total": total, "row": match["row"]}


def revision_of(name: str) -> int:
    """Return the revision of a model (see `ModelFamily.revision`) by its name: 2 if its ResNet is narrower than width 1
    (see `baselines.bit.revision_of`), else 1."""
    parts = _parse(name)
    return 2 if parts and parts["width"] < 1 else 1


def accepts(name: str) -> bool:
    """Return whether `name` is R<depth>[x<width>]+ViT-<row>/<total>, such as "R50+ViT-B/16", where the stride of the
    ResNet's remaining stages divides the total down-sampling."""
    return _parse(name) is not None


def build(
    name: str,
    *,
    image_size: int | tuple[int, int],
    channels: int,
    num_classes: int,
    generator: torch.Generator | None = None,
    numerics: str = "official",
    blocks: int | None = None,
    **options: Any,
) -> VisionTransformer:
    """Build a hybrid, such as "R50+ViT-B/16", with initial weights (without memory under `torch.device("meta")`).

    Args:
        generator: random generator of the initial weights; None = torch's global one.
        numerics: whose epsilons the ResNet has: "official" (the JAX code's) or "timm" (its port's).
        blocks: largest number of blocks in each stage of the ResNet; None = as the name says.
        options: fields of ViTConfig to override.

    Raises:
        ValueError: the name or an option is unknown, or the total down-sampling does not divide the image.
    """
    parts = _parse(name)
    if parts is None:
        depths = ", ".join(map(str, bit.BLOCKS))
        raise ValueError(
            f"{name!r} is not R<depth>[x<width>]+ViT-<row>/<total> with depth one of {depths}, row one of "
            f"{', '.join(vit_config.VARIANTS)}, and a total down-sampling that the ResNet's stride divides"
        )
    sizes = {"image_size": image_size, "channels": channels, "num_classes": num_classes}
    fields = {"stem": "resnet", **sizes, **options}
    config = vit_config.config_for(f"ViT-{parts['row']}/{parts['total']}", **fields)

    import torch

    from baselines import _resnet
    from vit.model import VisionTransformer

    with torch.device("meta"):
        backbone = _resnet.ResNet(
            bit.at_most(parts["blocks"], blocks),
            width=parts["width"],
            channels=channels,
            num_classes=0,
            small_stem=parts["small_stem"],
            preact=False,
            numerics=numerics,
        )
    return VisionTransformer(config, backbone=backbone, generator=generator)


FAMILY = ModelFamily(
    label="Hybrid",
    names=(*_PAPER, _STEM_ONLY, *_SMALL),
    naming="R<depth>[x<width>]+ViT-<row>/<n>: a ResNet's first stages, then a ViT's row; n is the total down-sampling",
    has_dropout=True,
    rehearsed={"depth": 1, "blocks": 1},
    revision_of=revision_of,
    accepts=accepts,
    build=build,
)
