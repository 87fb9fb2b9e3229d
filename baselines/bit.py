"""BiT ResNets (Kolesnikov et al. 2020), the ViT paper's "ResNet (BiT)": pre-activation, GroupNorm, standardised
weights.

Names: R<depth>x<width>[-s1|-s2], such as R50x1, R152x4, R11x0.25-s1. With the suffix, a 3x3 convolution of stride 1 or
2 replaces BiT's stem (7x7 of stride 2, then max-pooling), for images of about 28-64 px. The depth is the number of
weighted layers (a stem, three convolutions per bottleneck block, a classifier): 2 + 3 x blocks. Depth 26 is from BiT's
code, 50-200 are from He et al. 2016, and the rest are ours, for images of 28-32 px.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from vit.model_family import ModelFamily

if TYPE_CHECKING:
    import torch

    from baselines._resnet import ResNet

BLOCKS: dict[int, tuple[int, ...]] = {
    5: (1,),
    8: (1, 1),
    11: (1, 1, 1),
    14: (1, 1, 1, 1),
    20: (2, 2, 2),
    26: (2, 2, 2, 2),
    50: (3, 4, 6, 3),
    101: (3, 4, 23, 3),
    152: (3, 8, 36, 3),
    200: (3, 24, 36, 3),
}


_PAPER = ("R50x1", "R50x2", "R50x3", "R101x1", "R101x3", "R152x1", "R152x2", "R152x4", "R200x3")
_SMALL = ("R8x0.125-s2", "R8x0.25-s2", "R11x0.25-s2", "R11x0.5-s2", "R14x0.5-s2", "R26x0.25-s2")
_NAME = re.compile(r"R(?P<depth>\d+)x(?P<width>\d+(?:\.\d+)?)(?:-s(?P<stem>[12]))?")


def width_of(text: str | None, default: float) -> float | None:
    """Return the width factor that `text` says (`default` if it is None); None if the factor is not positive, or
    channels would not be multiples of 8."""
    width = default if text is None else float(text)
    return width if width > 0 and (width * 64) % 8 == 0 else None


def _parse(name: str) -> tuple[tuple[int, ...], float, int | None] | None:
    """Parse a name such as "R50x1" into (blocks per stage, width factor, stride of the small stem or None). Return None
    for a name of another form."""
    match = _NAME.fullmatch(name)
    blocks = BLOCKS.get(int(match["depth"])) if match else None
    width = width_of(match["width"], 1.0) if match else None
    if match is None or blocks is None or width is None:
        return None
    return blocks, width, int(match["stem"]) if match["stem"] else None


def at_most(stages: tuple[int, ...], blocks: int | None) -> tuple[int, ...]:
    """Return the numbers of blocks per stage, each limited to `blocks` (None = no limit).

    Raises:
        ValueError: `blocks` is not a whole number of at least 1.
    """
    if blocks is None:
        return stages
    if not isinstance(blocks, int) or blocks < 1:
        raise ValueError(f"blocks={blocks!r} is not a whole number of at least 1")
    return tuple(min(number, blocks) for number in stages)


def revision_of(name: str) -> int:
    """Return the revision of a model (see `ModelFamily.revision`) by its name: 2 if the width is below 1, because there
    groups of normalisation had two channels in revision 1; else 1, because wider networks have not changed."""
    parsed = _parse(name)
    return 2 if parsed and parsed[1] < 1 else 1


def accepts(name: str) -> bool:
    """Return whether `name` is R<depth>x<width>[-s1|-s2], such as "R50x1", with a depth in BLOCKS and a width at which
    channels are multiples of 8."""
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
    widest: int | None = None,
    **options: Any,
) -> ResNet:
    """Build a BiT ResNet, such as "R50x1", with initial weights (without memory under `torch.device("meta")`).

    Args:
        image_size: side, or (height, width), in pixels. It is only checked: the network takes any size that is not
            smaller than its total down-sampling.
        generator: random generator of the initial weights; None = torch's global one.
        numerics: whose epsilon the weight standardisation has: "official" (BiT's code) or "timm" (its port).
        blocks: largest number of blocks in each stage; None = as the name says.
        widest: largest width factor; None = as the name says.

    Raises:
        ValueError: the name or an option is unknown, or the image is smaller than the total down-sampling.
    """
    if options:
        raise ValueError(f"unknown option {', '.join(sorted(options))}; a ResNet has: numerics, blocks, widest")
    parsed = _parse(name)
    if parsed is None:
        depths = ", ".join(map(str, BLOCKS))
        raise ValueError(f"{name!r} is not R<depth>x<width>[-s1|-s2] with depth one of {depths}, width k/8")
    import torch

    from baselines import _resnet
    from vit.config import pair

    stages, width, small_stem = parsed
    sizes: dict[str, Any] = {"width": min(width, widest or width), "channels": channels, "num_classes": num_classes}
    device = torch.get_default_device()
    with torch.device("meta"):
        model = _resnet.ResNet(at_most(stages, blocks), small_stem=small_stem, preact=True, numerics=numerics, **sizes)
    _resnet.small_enough(pair(image_size), model.stride)
    _resnet.materialise(model, device, generator)
    return model


FAMILY = ModelFamily(
    label="ResNet",
    names=_PAPER + _SMALL,
    naming=f"R<depth>x<width>[-s1|-s2]; depths {' '.join(map(str, BLOCKS))}; -s1, -s2: a stem for small images",
    revision_of=revision_of,
    rehearsed={"blocks": 1, "widest": 2},  # R152x4 alone would take a third of a rehearsal at the paper's scale
    accepts=accepts,
    build=build,
)
