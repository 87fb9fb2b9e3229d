"""Small networks of vit-pytorch (MIT), as models that a study names: tools/control/networks.py:SimpleViT.

Only what has to fit images of 28 px is chosen here (patch, width, depth); everything else is the library's default.
"""

from __future__ import annotations

import vit_pytorch
from torch import nn
from vit_pytorch import cvt


def SimpleViT(*, image_size: int, channels: int, num_classes: int) -> nn.Module:
    """A plain ViT of 16 patches, mean pooling and sine-cosine positions."""
    return vit_pytorch.SimpleViT(
        image_size=image_size,
        patch_size=7,
        num_classes=num_classes,
        dim=64,
        depth=6,
        heads=4,
        dim_head=16,
        mlp_dim=128,
        channels=channels,
    )


def CvT(*, channels: int, num_classes: int) -> nn.Module:
    """A convolutional transformer of three stages, an eighth of the width of the smallest published one."""
    return cvt.CvT(
        num_classes=num_classes,
        channels=channels,
        s1_emb_dim=16,
        s1_emb_kernel=3,
        s1_emb_stride=2,
        s2_emb_dim=32,
        s2_heads=2,
        s2_depth=1,
        s3_emb_dim=64,
        s3_heads=4,
        s3_depth=2,
    )
