"""BiT ResNets (Kolesnikov et al. 2020), the paper's "ResNet (BiT)": pre-activation, GroupNorm, standardised weights.

Names: R<depth>x<width>[-s1|-s2], as R50x1, R152x4, R11x0.25-s1. The suffix replaces BiT's stem (7x7 of stride 2, then
max-pooling) by a 3x3 convolution of stride 1 or 2, for images of about 28-64 px. Depths count weighted layers: a stem,
three convolutions per bottleneck block, a classifier: 2 + 3 x blocks. 26 is the BiT code's own; 50-200 are He et al.
2016's; the rest are ours, for images of 28-32 px.
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
    """A width factor from a name; None where the channel counts would not be multiples of 8 or would vanish."""
    width = default if text is None else float(text)
    return width if width > 0 and (width * 64) % 8 == 0 else None


def _parse(name: str) -> tuple[tuple[int, ...], float, int | None] | None:
    """(blocks per stage, width, stride of the small stem) of a name, or None."""
    match = _NAME.fullmatch(name)
    blocks = BLOCKS.get(int(match["depth"])) if match else None
    width = width_of(match["width"], 1.0) if match else None
    if match is None or blocks is None or width is None:
        return None
    return blocks, width, int(match["stem"]) if match["stem"] else None


def at_most(stages: tuple[int, ...], blocks: int | None) -> tuple[int, ...]:
    """Blocks per stage, cut to so many.

    Raises:
        ValueError: to none.
    """
    if blocks is None:
        return stages
    if not isinstance(blocks, int) or blocks < 1:
        raise ValueError(f"blocks={blocks!r} is not a whole number of at least 1")
    return tuple(min(number, blocks) for number in stages)


def revision_of(name: str) -> int:
    """2 below width 1, where groups of normalisation had two channels before; wider networks are what they were."""
    parsed = _parse(name)
    return 2 if parsed and parsed[1] < 1 else 1


def accepts(name: str) -> bool:
    """Whether `name` is R<depth>x<width>[-s1|-s2] with a depth of the table and channels that are multiples of 8."""
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
    """A ResNet, initialised (or empty, under `torch.device("meta")`).

    Args:
        image_size: only checked: the network takes any size that survives its down-sampling.
        numerics: "official" or "timm": the epsilon of the weight standardisation.
        blocks: of each stage, at most; None for those of the name.
        widest: the width, at most; None for that of the name.

    Raises:
        ValueError: unknown name or option, or an image smaller than the total down-sampling.
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
    rehearsed={"blocks": 1, "widest": 2},  # R152x4 alone would take a third of the paper's rehearsal
    accepts=accepts,
    build=build,
)
