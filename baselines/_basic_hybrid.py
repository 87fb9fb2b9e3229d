"""A small ResNet as the stem of a ViT. Shapes: B images, C channels, H and W pixels, N tokens, D width of a token."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from torch import Tensor
from torch.nn import functional as F

from baselines._basic_resnet import NORMS, BasicBlock, BasicResNet
from vit.config import pair
from vit.model import VisionTransformer

if TYPE_CHECKING:
    from vit.formats import Entry


class Backbone(BasicResNet):
    """A small ResNet without its classifier: x_BCHW -> the last stage's feature map.

    Args:
        blocks: number of blocks in each stage; the first block of a stage has the stage's stride.
        widths: channels of each stage.
        strides: stride of the stem, then of each stage.
        channels: channels of the images.
        norm: a name in `NORMS` ("batch" or "group").
    """

    def __init__(
        self, blocks: Sequence[int], *, widths: Sequence[int], strides: Sequence[int], channels: int, norm: str
    ) -> None:
        super().__init__(blocks=1, widths=widths, strides=strides, channels=channels, num_classes=0, norm=norm)
        for stage, width, depth in zip(self.stages, widths, blocks, strict=True):
            for _ in range(depth - 1):
                stage.append(BasicBlock(width, width, stride=1, norm=NORMS[norm], shortcut="pad"))  # type: ignore[operator]
        self.out_channels = self.num_features

    def checkpoint_entries(self, layout: str) -> list[Entry]:
        """Return no entries for a checkpoint layout, because no published checkpoint has this stem."""
        return []

    def forward(self, x_BCHW: Tensor) -> Tensor:
        return self.forward_features(x_BCHW)


class BasicHybrid(VisionTransformer):
    """A ViT with a small ResNet as its stem. Smaller images are padded, by repeating their border, to the size that the
    model was built for."""

    def tokens(self, x_BCHW: Tensor, **how: Any) -> Tensor:
        (tall, wide), (total, _) = pair(self.config.image_size), pair(self.config.patch_size)
        height, width = tall - x_BCHW.shape[-2], wide - x_BCHW.shape[-1]
        if 0 <= height < total and 0 <= width < total and (height or width):
            sides = (width // 2, width - width // 2, height // 2, height - height // 2)
            x_BCHW = F.pad(x_BCHW, sides, mode="replicate")
        return super().tokens(x_BCHW, **how)
