"""Networks of other hands by the kind of family that they belong to, with the FLOPs of one training image of 28 px."""

from __future__ import annotations

OUTSIDE: dict[str, dict[str, float]] = {
    "ViT": {
        "timm:test_vit:patch_size=7": 26.70e6,
        "timm:test_vit2:patch_size=7": 35.50e6,
        "tools/control/networks.py:SimpleViT": 20.36e6,
    },
    "Hybrid": {
        "timm:mobilevit_xxs": 28.78e6,
        "timm:efficientvit_b0": 18.58e6,
        "tools/control/networks.py:CvT": 37.15e6,
    },
    "ResNet": {
        "timm:test_resnet": 16.04e6,
        "timm:test_byobnet": 4.84e6,
        "timm:test_efficientnet": 9.53e6,
        "timm:resnet10t": 78.08e6,
    },
}
"""Kind -> model -> FLOPs, forward and backward, in the paper's convention."""
