"""RandAugment (Cubuk et al. 2020) by timm: two operations per image at magnitude 9 of 10, which varies with a standard
deviation of 0.5 ("rand-m9-n2-mstd0.5"). Pillow changes the images one by one, on the CPU."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from bench.study.cell import Recipe
from bench.train.augmentations.augmentation import Augmentation

POLICY = "rand-m9-n2-mstd0.5"
GREY = 128  # value of pixels that come into view: the middle of their range


@cache
def _transform(size: int, channels: int) -> Any:
    from timm.data.auto_augment import rand_augment_transform

    fill = (GREY,) * channels if channels > 1 else GREY
    return rand_augment_transform(POLICY, {"translate_const": int(size * 0.45), "img_mean": fill})


def pixels(recipe: Recipe, image_HWC: np.ndarray) -> np.ndarray:
    """Return an image, uint8 (H, W, C), changed at random by timm's RandAugment; the recipe changes nothing."""
    from PIL import Image

    height, width, channels = image_HWC.shape
    picture = Image.fromarray(image_HWC if channels > 1 else image_HWC[..., 0])
    changed = np.asarray(_transform(min(height, width), channels)(picture))
    return changed.reshape(height, width, channels)


AUGMENTATION = Augmentation(pixels=pixels)
