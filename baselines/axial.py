"""Axial-attention ViTs (the ViT paper's appendix D.6, after Ho et al. 2019 and Wang et al. 2020).

Names: AxialViT-<variant>/<patch>, such as AxialViT-B/16, with a variant of vit/config.py. Every block of the ViT
becomes two: self-attention along rows and an MLP, then self-attention along columns and an MLP. This doubles the
weights and MLPs of the blocks, but a token attends to the tokens of its row, then of its column, instead of all. Patch
tokens are averaged, because the appendix does not say where a class token would go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vit import config as vit_config
from vit.model_family import ModelFamily

if TYPE_CHECKING:
    import torch

    from vit.model import VisionTransformer

_PREFIX = "Axial"


def accepts(name: str) -> bool:
    """Return whether `name` is AxialViT-<variant>/<patch>, such as "AxialViT-B/16", with a variant of vit/config.py."""
    return name.startswith(f"{_PREFIX}ViT-") and vit_config.parse(name.removeprefix(_PREFIX)) is not None


def build(
    name: str,
    *,
    image_size: int | tuple[int, int],
    channels: int,
    num_classes: int,
    generator: torch.Generator | None = None,
    **options: Any,
) -> VisionTransformer:
    """Build an axial ViT, such as "AxialViT-B/16", with initial weights (without memory under `torch.device("meta")`).

    Args:
        generator: random generator of the initial weights; None = torch's global one.
        options: fields of ViTConfig to override.

    Raises:
        ValueError: the name or an option is unknown, or the patch does not divide the image.
    """
    if not accepts(name):
        raise ValueError(f"{name!r} is not AxialViT-<{'|'.join(vit_config.VARIANTS)}>/<patch>")
    from vit.model import VisionTransformer

    fields = {"attention": "axial", "pooling": "mean", **options}
    sizes = {"image_size": image_size, "channels": channels, "num_classes": num_classes}
    return VisionTransformer(vit_config.config_for(name.removeprefix(_PREFIX), **sizes, **fields), generator=generator)


FAMILY = ModelFamily(
    label="Axial ViT",
    names=("AxialViT-B/16", "AxialViT-B/32", "AxialViT-pico/4", "AxialViT-pico/7", "AxialViT-nano/4"),
    naming="AxialViT-<row>/<patch size>: rows of ViT; attention along rows, then along columns",
    has_dropout=True,
    rehearsed={"depth": 1},  # depth 1 has two blocks here
    accepts=accepts,
    build=build,
)
