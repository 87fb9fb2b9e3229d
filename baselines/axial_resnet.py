"""Axial ResNets (the ViT paper's appendix D.6, after Wang et al. 2020): BiT ResNets with axial attention in place of
3x3 convolutions.

Names: AxialR<depth>x<width>[-s1|-s2], which is "Axial" before a name of `baselines/bit.py`, such as AxialR50x1, which
the ViT paper calls AxialResNet50. Attention goes along the rows of the feature map, then along its columns, with
learned vectors for the offset between two pixels in queries, keys and values (Wang et al., section 3.2). The tables of
these vectors have the size of the map, so a network is built for one image size, and cannot be fine-tuned at another.

Wang et al. use batch normalisation, also for the logits before the softmax. Here normalisation is by groups, as in the
rest of a BiT ResNet, and the logits are divided by the square root of the length of a query.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from baselines import bit
from vit.model_family import ModelFamily

if TYPE_CHECKING:
    import torch

    from baselines._axial_resnet import AxialResNet

_PREFIX = "Axial"
HEADS = 8


def _parse(name: str) -> tuple[tuple[int, ...], float, int | None] | None:
    """Parse a name such as "AxialR50x1" into (blocks per stage, width factor, stride of the small stem or None). Return
    None for a name of another form, or if a head of attention would not have a whole number of channels."""
    parsed = bit._parse(name.removeprefix(_PREFIX)) if name.startswith(_PREFIX) else None
    return parsed if parsed and (64 * parsed[1]) % (2 * HEADS) == 0 else None


def accepts(name: str) -> bool:
    """Return whether `name` is AxialR<depth>x<width>[-s1|-s2] with a depth of `bit.BLOCKS` and a width that is a
    multiple of 1/4."""
    return _parse(name) is not None


def build(
    name: str,
    *,
    image_size: int | tuple[int, int],
    channels: int,
    num_classes: int,
    generator: torch.Generator | None = None,
    blocks: int | None = None,
    **options: Any,
) -> AxialResNet:
    """Build an axial ResNet, such as "AxialR50x1", with initial weights (without memory under `torch.device("meta")`).

    Args:
        image_size: side, or (height, width), in pixels, that every image must have.
        generator: random generator of the initial weights; None = torch's global one.
        blocks: largest number of blocks in each stage; None = as the name says.

    Raises:
        ValueError: the name or an option is unknown, or the image is smaller than the total down-sampling.
    """
    if options:
        raise ValueError(f"unknown option {', '.join(sorted(options))}; an axial ResNet has: blocks")
    parsed = _parse(name)
    if parsed is None:
        depths = ", ".join(map(str, bit.BLOCKS))
        raise ValueError(f"{name!r} is not AxialR<depth>x<width>[-s1|-s2] with depth one of {depths}, width k/4")
    import torch

    from baselines import _axial_resnet, _resnet
    from vit.config import pair

    stages, width, small_stem = parsed
    sizes: dict[str, Any] = {"width": width, "channels": channels, "num_classes": num_classes}
    device = torch.get_default_device()
    with torch.device("meta"):
        model = _axial_resnet.AxialResNet(
            bit.at_most(stages, blocks), image_size=pair(image_size), small_stem=small_stem, heads=HEADS, **sizes
        )
    _resnet.small_enough(pair(image_size), model.stride)
    _resnet.materialise(model, device, generator)
    return model


FAMILY = ModelFamily(
    label="Axial ResNet",
    names=("AxialR50x1", "AxialR26x1-s2"),
    naming="AxialR<depth>x<width>[-s1|-s2]: a BiT with attention along rows and columns in place of 3x3 convolutions",
    rehearsed={"blocks": 1},
    accepts=accepts,
    build=build,
)
