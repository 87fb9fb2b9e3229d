"""The pixel baseline: raw pixels as features. It has no parameters and no classifier, and is not trained."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vit.model_family import ModelFamily

if TYPE_CHECKING:
    import torch
    from torch import nn


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
    """Return a module whose `features` are the flattened pixels.

    Args:
        image_size: side, or (height, width), in pixels.
        generator: ignored, because there are no weights.
        num_classes: ignored, because there is no classifier; calling the module itself raises NotImplementedError.

    Raises:
        ValueError: the name is unknown, or an option is given.
    """
    if options:
        raise ValueError(f"unknown option {', '.join(sorted(options))}; pixels have none")
    if not accepts(name):
        raise ValueError(f"{name!r} is not 'pixels'")
    from torch import nn

    from vit.config import pair

    class Pixels(nn.Module):
        """A model with features(x_BCHW) -> x_BF, F = C x H x W, and no classifier."""

        def __init__(self, num_features: int) -> None:
            super().__init__()
            self.num_features = num_features
            self.head = nn.Identity()

        def init_weights(self, generator: torch.Generator | None = None) -> None:
            """Do nothing: there are no weights."""

        def features(self, x_BCHW: torch.Tensor) -> torch.Tensor:
            return x_BCHW.flatten(1)

        def forward(self, x_BCHW: torch.Tensor) -> torch.Tensor:
            raise NotImplementedError("'pixels' has no classifier; use features() and a probe on them")

    height, width = pair(image_size)
    return Pixels(channels * height * width)


FAMILY = ModelFamily(
    label="Pixels",
    names=("pixels",),
    naming="pixels: the image itself as features; a suite only reads it",
    trains=False,  # a suite only evaluates it
    accepts=accepts,
    build=build,
)
