"""Accuracy of a model's own head on a labelled set, in test mode, never dropping a last batch."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from bench.data.images import ImageSet
from bench.train.batches import to_input


@torch.inference_mode()
def top1(model: nn.Module, images: ImageSet, *, device: str, batch: int = 256) -> int:
    """How many images the model classifies rightly."""
    right = torch.zeros((), dtype=torch.int64, device=device)
    for first in range(0, len(images), batch):
        part = np.array(images.images_NHWC[first : first + batch])  # a copy: the source may be a read-only map
        labels_B = torch.from_numpy(np.array(images.labels_N[first : first + batch])).to(device)
        right += (model(to_input(torch.from_numpy(part).to(device))).argmax(-1) == labels_B).sum()
    return int(right)
