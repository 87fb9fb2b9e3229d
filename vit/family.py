"""The model family of Vision Transformers: their names, and how to build one. Other families are in `baselines/`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vit import config as vit_config
from vit.model_family import ModelFamily

if TYPE_CHECKING:
    import torch

    from vit.model import VisionTransformer


_PATCHES = {  # row -> patch sizes of the names that are registered; a row that is not listed has patch 16
    **dict.fromkeys(("atto", "femto", "pico-2"), (4, 7)),
    "pico": (4, 7, 14),
    "nano": (4, 7, 14),
    "micro": (4, 7, 14),
    "mini": (4, 7, 14),
    **dict.fromkeys(("Lite-2", "Lite-4", "Lite-6", "Lite-7"), (4, 7)),
    "S": (8, 16, 32),
    "b": (32,),
    "B": (8, 16, 32),
    "L": (14, 16, 32),
    "L-8": (16, 32, 56),
    "H": (14,),
    "g": (14,),
    "G": (14,),
}


def accepts(name: str) -> bool:
    """Return whether `name` is ViT-<variant>/<patch size>, such as "ViT-B/16", or a preset of vit/config.py."""
    return vit_config.parse(name) is not None


def build(
    name: str,
    *,
    image_size: int | tuple[int, int],
    channels: int,
    num_classes: int,
    generator: torch.Generator | None = None,
    **options: Any,
) -> VisionTransformer:
    """Build a ViT, initialised as in the ViT paper (without memory under `torch.device("meta")`).

    Args:
        name: a variant and patch size, such as "ViT-B/16", or a preset of vit/config.py.
        image_size: side, or (height, width), in pixels.
        generator: random generator of the initial weights; None = torch's global one.
        options: fields of ViTConfig to override.

    Raises:
        ValueError: the name or an option is unknown, or the patch does not divide the image.
    """
    from vit.model import VisionTransformer

    sizes = {"image_size": image_size, "channels": channels, "num_classes": num_classes}
    return VisionTransformer(vit_config.config_for(name, **sizes, **options), generator=generator)


FAMILY = ModelFamily(
    label="ViT",
    names=tuple(f"ViT-{row}/{patch}" for row in vit_config.VARIANTS for patch in _PATCHES.get(row, (16,))),
    naming=f"ViT-<row>/<patch size>; rows {' '.join(vit_config.VARIANTS)}; also {', '.join(vit_config.PRESETS)}",
    has_dropout=True,
    rehearsed={"depth": 1},
    accepts=accepts,
    build=build,
)
