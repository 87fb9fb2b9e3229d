"""ViT-atto/7 with a parameter that nothing reads: a change that does nothing."""

import torch
from torch import nn

from vit.config import config_for
from vit.model import VisionTransformer


class Net(VisionTransformer):
    """The network of the baseline, and eight numbers beside it."""

    def __init__(self, image_size: int, channels: int, num_classes: int) -> None:
        super().__init__(config_for("ViT-atto/7", image_size=image_size, channels=channels, num_classes=num_classes))
        self.unused = nn.Parameter(torch.zeros(8))
