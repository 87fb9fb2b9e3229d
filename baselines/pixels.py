"""The floor: raw pixels as features. No parameters, no head, nothing to train."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch
    from torch import nn

FAMILY = "Pixels"
REVISION = 1
NAMING = "pixels: the image itself as features; a suite only reads it"
TRAINS = False  # a suite only reads it


def names() -> tuple[str, ...]:
    return ("pixels",)


def accepts(name: str) -> bool:
    return name == "pixels"


def build(
    name: str,
    *,
    image_size: int | tuple[int, int],
    channels: int,
    num_classes: int = 0,
    generator: torch.Generator | None = None,
    **options: Any,
) -> nn.Module:
    """A module whose `features` are the pixels, flattened.

    Args:
        num_classes: ignored, for there is no head: calling the module itself raises.

    Raises:
        ValueError: unknown name, or any option.
    """
    if options:
        raise ValueError(f"unknown option {', '.join(sorted(options))}; pixels have none")
    if not accepts(name):
        raise ValueError(f"{name!r} is not 'pixels'")
    from baselines import _pixels
    from vit.config import pair

    height, width = pair(image_size)
    return _pixels.Pixels(num_features=channels * height * width)
