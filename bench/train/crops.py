"""Random crops of whole batches, as the paper's training took them ("Inception crops").

Boxes follow TensorFlow's `sample_distorted_bounding_box`, which the paper's code called: the ratio of width to height
is uniform in 3:4 to 4:3, then the height is uniform among those that keep enough of the image's area. (torchvision's
RandomResizedCrop draws the area uniformly, and shows small parts more often.) Pixels are interpolated bilinearly
without a low-pass, as there; a crop of an image that is stored at the model's size is enlarged.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

RATIOS = (3 / 4, 4 / 3)  # width / height


def boxes(rng: np.random.Generator, *, number: int, height: int, width: int, least: float) -> np.ndarray:
    """(top, left, height, width) in pixels of `number` crops, int64 (4, number).

    Args:
        least: the smallest share of the area that a crop keeps; the paper's is 0.05.
    """
    ratio_B, tall_B, down_B, right_B = rng.random((4, number))
    ratio_B = RATIOS[0] + ratio_B * (RATIOS[1] - RATIOS[0])
    area = height * width
    most_B = np.floor(np.minimum(np.sqrt(area / ratio_B), np.minimum(height, (width + 0.5) / ratio_B))).clip(min=1)
    fewest_B = np.round(np.sqrt(least * area / ratio_B)).clip(1, most_B)
    height_B = fewest_B + np.floor(tall_B * (most_B - fewest_B + 1))
    width_B = np.round(height_B * ratio_B).clip(1, width)
    top_B, left_B = np.floor(down_B * (height - height_B + 1)), np.floor(right_B * (width - width_B + 1))
    return np.stack([top_B, left_B, height_B, width_B]).astype(np.int64)


def cropped(x_BCHW: Tensor, boxes_4B: Tensor) -> Tensor:
    """Every image's box, enlarged to the size of the image: float (B, C, H, W)."""
    top_B, left_B, height_B, width_B = boxes_4B.to(x_BCHW.dtype)
    y_BH = _centres(top_B, height_B, x_BCHW.shape[2])
    x_BW = _centres(left_B, width_B, x_BCHW.shape[3])
    shape = (len(x_BCHW), *x_BCHW.shape[2:])
    grid_BHW2 = torch.stack([x_BW[:, None, :].expand(shape), y_BH[:, :, None].expand(shape)], dim=-1)
    return F.grid_sample(x_BCHW, grid_BHW2, mode="bilinear", padding_mode="border", align_corners=False)


def _centres(start_B: Tensor, length_B: Tensor, size: int) -> Tensor:
    """Where the `size` pixels of each enlarged stretch lie along an axis of `size` pixels, as `grid_sample` counts:
    from -1 to 1, edge to edge. Beyond the centre of a stretch's last pixel that pixel is repeated."""
    step_B1, start_B1 = length_B[:, None] / size, start_B[:, None]
    at_BS = start_B1 + (torch.arange(size, device=start_B.device, dtype=start_B.dtype) + 0.5) * step_B1
    at_BS = at_BS.clamp(min=start_B1 + 0.5, max=start_B1 + length_B[:, None] - 0.5)
    return at_BS * (2 / size) - 1
