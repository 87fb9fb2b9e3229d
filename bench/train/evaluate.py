"""Accuracy of a model's own head on a labelled set, in test mode, never dropping a last batch."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from bench.core.device import InBatches
from bench.data.image_set import ImageSet
from bench.train.batches import to_input


@torch.inference_mode()
def top1(model: nn.Module, images: ImageSet, *, device: str, batches: InBatches | None = None) -> int:
    """How many images the model classifies rightly."""

    def right(part: slice) -> Tensor:
        pixels_BHWC = np.array(images.images_NHWC[part])  # a copy: the source may be a read-only map
        labels_B = torch.from_numpy(np.array(images.labels_N[part])).to(device)
        return (model(to_input(torch.from_numpy(pixels_BHWC).to(device))).argmax(-1) == labels_B).sum()

    counts = (batches or InBatches(device=device))(len(images), right)
    return int(torch.stack(counts).sum())
