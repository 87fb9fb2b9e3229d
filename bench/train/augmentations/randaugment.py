"""RandAugment (Cubuk et al. 2020) by timm: two operations an image at magnitude 9 of 10, varied by half a step
("rand-m9-n2-mstd0.5"). Images pass through Pillow one by one, on the processor."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from bench.study.cell import Recipe
from bench.train.augmentations.augmentation import Augmentation

POLICY = "rand-m9-n2-mstd0.5"
GREY = 128  # It fills what comes into view, and is the middle of a pixel's range.


@cache
def _transform(size: int, channels: int) -> Any:
    from timm.data.auto_augment import rand_augment_transform

    fill = (GREY,) * channels if channels > 1 else GREY
    return rand_augment_transform(POLICY, {"translate_const": int(size * 0.45), "img_mean": fill})


def pixels(recipe: Recipe, image_HWC: np.ndarray) -> np.ndarray:
    """timm's policy on one image."""
    from PIL import Image

    height, width, channels = image_HWC.shape
    picture = Image.fromarray(image_HWC if channels > 1 else image_HWC[..., 0])
    changed = np.asarray(_transform(min(height, width), channels)(picture))
    return changed.reshape(height, width, channels)


AUGMENTATION = Augmentation(pixels=pixels)
