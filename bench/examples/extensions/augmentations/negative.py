"""An augmentation that turns half of the images into negatives."""

import random

from bench.train.augmentations.augmentation import Augmentation


def pixels(recipe, image_HWC):  # uint8
    return 255 - image_HWC if random.random() < 0.5 else image_HWC


AUGMENTATION = Augmentation(pixels=pixels)
